"""Everyday words of languages other than English that could stand in any question: `Zeit`, `question`, `semana`.

The rule: what names a thing, a food, an animal or a trade is left out, and so is what means such a thing in English.
"""

from __future__ import annotations

GERMAN = """
alt alte alten
abend abende absatz adresse alter alternative anderung anderungen anfang angabe angaben angebot anleitung ansicht
antwort antworten anzahl arbeit arbeiten arbeitet artikel arten aufgabe aufgaben augenblick ausdruck ausgabe ausgaben
aussage auswahl bedeutet bedeutung bedingung begriff begriffe beginn beispiel beispiele bemerkung bereich bereiche
bericht beruf beschreibe beschreibung beschreibungen beste besten besser besonders betrag bild bilder braucht brauche
brauchen buch bucher buchstabe chance code daten datei dateien datum dauer dauert denken dezember dienstag ding dinge
donnerstag ebene eigenschaft eigenschaften einfach eingabe eintrag eintrage ende entscheidung entwurf ereignis ergebnis
ergebnisse erfahrung erfolg erklare erklaren erklarung erzahle essen fahrt falle familie farbe farben fehler fest finde
finden folge folgen folgende form formen frage fragen frau frauen freitag freund freunde freundin fruhling fruhstuck
funktion funktionen funktioniert ganz ganze ganzen gebe geben gedanke gefuhl gegenteil gegend geld gemacht genau
geschichte geschichten gesprach gestern gesicht grosse grossen grosste gross grund grunde gruppe grosser gute guten
guter hand haus hause hauser heisst heissen herbst herr hilfe hilf horen hort idee ideen inhalt information
informationen interesse jahr jahre jahren jahres jahrhundert januar februar marz april mai juni juli august september
oktober november junge kapitel kannst kind kinder klar klein kleine kleinen konnte konnten konnt kopf kosten kostet
kurz kurze kurzer lage land lander lange langer lauft lautet leben lebens lebt legt lehrer leute liebe liegt liest
liste listen losung losungen lust mache machst macht madchen mag magst mal manche mann manner meinung menge mensch
menschen methode minute minuten mittag mitte mittel mittwoch moglich moglichkeit moglichkeiten moment monat monate
monaten montag montags morgen musik muss mussen musst nachmittag nachricht nachrichten nachste nachsten nacht nachte
name namen natur nehmen nenne nennen nennt neue neuen neuer neues normal nummer nutzt nutzen oft ordner ort orte
ordnung paar person personen plan plane platz preis preise prinzip problem probleme programm programme projekt projekte
prozent punkt punkte qualitat quelle quellen recht regel regeln reihe rolle sache sachen sagen sagt samstag satz satze
schlecht schlechter schreibe schreiben schreibt schritt schritte seite seiten sekunde sekunden sinn situation sollte
sommer sonntag sorge spiel spiele spielt sprache sprachen spricht stadt stadte stand stelle stellt stellen stimme
strasse strassen stuck stunde stunden suche sucht summe tabelle tag tage tagen tages teil teile text texte thema themen
tipp tipps titel tun typ uberblick ubersetze ubersetzen ubersetzung uhr umgebung unterschied unterschiede ursache
verbesser verbessere verbessern vergleich vergleiche verhaltnis version versuch verstehe verstehen viele vielen
vorschlag vorschlage vorteil vorteile vortrag wahl wahrheit wasser weg wege weise weiss welt wert werte wetter wichtig
wichtige wichtigsten will winter wirkung wissen woche wochen wochenende wohnt wort worte worter wunsch zahl zahlen
zeichen zeig zeige zeigt zeile zeilen zeit zeiten zeitung ziel ziele zimmer zukunft zusammen zusammenfassung fasse
zustand zweck zwischen dabei dafur dazu ab weil ob
"""
"""Without accents, as all words are compared; `Art`, `Gift`, `Rock` and the like are left out."""

ROMANCE = """
annee ans apres argent article aujourd'hui avantage avantages avis beaucoup besoin bien bonjour but ceux chaque chiffre
choix chose choses code combien conseil conseils cote couleur cours debut demain dernier derniere dessus dimanche doit
donne donner donnees dossier ecrire ecris effet endroit enfant enfants ensemble entre erreur etapes etat exemple
exemples explique expliquer facon famille femme fichier fichiers fin fois fonction forme francais gens grand grande
groupe heure heures hier histoire homme hommes idee idees importance information informations janvier fevrier avril
juin juillet aout septembre octobre novembre decembre jeudi jeu jour journee jours langue lettre lieu ligne lignes
liste livre livres lundi mardi maison maniere matin meilleur meilleure meme mercredi message methode mieux minutes
moins mois moment monde montre mot mots moyen musique moyenne niveau nom nombre nouveau nouvelle nuit numero objet
outil ouvrage parler parle partie pays pendant permet personne personnes petit petite peu phrase phrases pieces plan
plusieurs possible pourrais premier premiere prix probleme problemes projet projets quelques question questions raison
raisons rapport reponse reponses resultat resultats resume rue samedi savoir semaine semaines sens signifie situation
soir solution sous suite sujet table taille temps tete texte titre travail travaille travailler traduire traduis
trouver type valeur vendredi vers vie vieux ville villes voir voila vrai ahora algunos amigo amigos ano anos ayer ayuda
bueno buena cada calle cambio caso casa cifra ciudad ciudades codigo color consejo consejos correo cosa cosas cuanto
cuantos cuenta datos debe decir dia dias diferencia dinero domingo ejemplo ejemplos empresa encontrar enero febrero
marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre error escribe escribir espanol estado
explica explicar familia fecha forma frase funcion gracias gran grupo hacer hijo hijos historia hola hombre hora horas
hoy idea ideas informacion jueves juego lado lengua leer libro libros linea lista llama lugar lunes manera manana
martes mayor mejor menos mensaje mes meses miercoles mismo momento mucho muchos mujer mundo musica nada necesito nino
ninos noche nuevo nueva pais paises palabra palabras parte pasos pequeno persona personas poco precio pregunta
preguntas primer primera primero problema problemas programa proyecto proyectos pueblo puedo punto razon respuesta
respuestas resultado resumen sabado saber semana semanas siempre significa sistema situacion solucion tamano tarde
tarea tema texto tiempo tipo titulo todo todos trabaja trabajar trabajo traduce traducir valor veces ventajas ver viaje
vida viernes vez adesso aiuto altro amico amici anno anni bambini bambino bello bene buono buona citta codice colore
consiglio consigli cose dati differenza dire domanda domande domani domenica donna dove effetto errore esempio esempi
famiglia febbraio gennaio aprile maggio giugno luglio settembre ottobre dicembre fine foto funzione funziona giorno
giorni giovedi gioco grazie gruppo ieri informazione informazioni ingrandire insieme lato lavoro lavora lavorare
leggere lettera libri lingua luogo lunedi maniera martedi mattina meglio mercoledi mese mesi messaggio metodo mille
minuti modo molto molti mondo motivo niente nome notte nuovo nuova oggi ogni ora ore paese paesi pagina parola parole
parlare passi persone piccolo possibile posso posto prezzo prima primo problemi progetto progetti quanto quanti ragione
regola riassunto riga risposta risposte risultato sabato scrivere scrivi sempre sera settimana settimane situazione
soldi soluzione spiega spiegare stato storia strada tempo testo titolo tradurre traduci tutti tutto uomo uomini valore
vantaggi vedere venerdi vita volta volte ajuda amanha arquivo arquivos aula bom boa cidade cidades coisa coisas cor
dados diferenca dinheiro dizer erro escreva escrever exemplo exemplos fazer ficheiro fim funcao hoje homem ideia
informacao janeiro fevereiro maio junho julho setembro outubro novembro dezembro jogo ler linha livro livros maneira
manha melhor mensagem mulher noite novo nova obrigado ola ontem palavra palavras passos pergunta perguntas pessoa
pessoas preco primeiro projeto projetos quantos razao regra resposta respostas resumo rua segunda situacao solucao
tamanho tarefa trabalha trabalhar trabalho traduza traduzir vezes viagem
"""
"""French, Spanish, Italian and Portuguese, without accents."""

DUTCH = """
aantal adres afbeelding alles anders antwoord antwoorden avond baan begin beste bestand bestanden betekenis betekent
beter bericht bladzijde boek boeken dag dagen deel dingen doel doet donderdag dinsdag eerste eind einde fout fouten
gaat gebruik gebruiken gebruikt gedaan gegevens geld geschiedenis gesprek getal gezin goede graag groep groot grote
grootste hele helpen helpt hulp huis huizen idee ideeen iedere iets informatie inhoud jaar jaren jongen kamer keer
keren keuze kies kind kinderen kleine kleur kleuren kort korte kost kosten kun kunnen kunt laatste land landen lang
lange leren leven lezen leuk lijst maak maakt maand maanden maandag januari februari maart april mei juni juli augustus
oktober man manier manieren meest meeste mening mens mensen middag minuut minuten moeten mogelijk mogelijkheden
mogelijkheid mooi mooie morgen muziek naam nacht namen nieuw nieuwe nieuws nodig noem nummer ochtend onderwerp
oplossing overzicht paar pagina papier plaats plan plannen prijs probeer probleem problemen project projecten programma
punt punten reden regel regels samenvatting schrijf schrijft schrijven soort soorten spreekt spel staat stad stap
stappen steden straat stuk taal talen taak taken tekst tekens tijd tijden tip tips titel uitleg uitleggen uur vaak
vandaag vertaal vertalen verhaal verhalen verschil verschillen vertel vind vinden voorbeeld voorbeelden voordelen
voorstel vraag vragen vriend vrienden vrijdag vrouw waarde weekend weer weken wereld werk werken werkt werkte weet weg
weten woensdag wonen woont woord woorden zaak zaken zaterdag zeggen zegt zin zinnen zoek zoeken zondag
"""

GERMAN_ONLY = """
aber als auf aus bei beim das dass dein deine dem den der des dich dir durch ein eine einem einen einer eines er es
euch fur habe haben hast hat heisst ich ihm ihn ihr ihre im ist jede jeden jeder jedes kann kannst kein keine keinen
konnen mein meine meinem meinen meiner mich mir mit nach nicht noch nur oder ohne sehr sein seine seinen seit sich sie
sind uber um und uns unser unsere vom von vor wann warum welche welchem welchen welcher welches wenn wer werden wie
wieviel wird wo wohnt zu zum zur zwischen
"""
"""Words by which a text is told to be German, where every noun is written with a capital letter."""
ENGLISH_ONLY = """
a about and any are at be by can did do does for from get has have he her his how i if is it its like likes my not of
on or our she should that the their there they this to uses was we what when where which who why with you your
"""
