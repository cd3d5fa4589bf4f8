"""What words tell about a sentence: that it asks, orders, supposes, denies, or speaks of somebody else.

The rule: all patterns are for folded text (lower case, no accents) and are guesses. A wrong guess may make the person
be asked once more, or lose a fact; it never lets one through that would not have passed without it.
"""

from __future__ import annotations

import re

from kvchat.memory.similarity import stem, words


def _any(*parts: str) -> re.Pattern[str]:
    """One of these: the first part stands between the ends of words, the others anywhere."""
    return re.compile("|".join([rf"\b(?:{parts[0]})\b", *parts[1:]]))


_AUX = "do|does|did|is|are|am|was|were|can|could|should|will|would|may|might|has|have"
_ONSET = (r"\A\W*(?:(?:so|and|but|then|now|ok|okay|hey|hi|also|first|next|just|please|kindly|pls|bitte|por favor"
          r"|s['’]il te plait|s['’]il vous plait)\b\W*)*")
_TEXT_WORK = (r"translate|summari[sz]e|summary of|rewrite|rephrase|paraphrase|proofread|correct|fix|improve|shorten"
              r"|edit|polish|explain|analy[sz]e|review|check|reply to|answer|respond to|classify|extract|complete"
              r"|continue|ubersetze?|fasse|verbessere?|korrigiere?|traduis|traduisez|resume|corrige|traduce")

HANDED_OVER = re.compile(
    rf"(?:\b(?:{_TEXT_WORK})\b|翻译|翻訳|总结|要約)[^.!?\n。]{{0,80}}?"
    r"(?:[:：]|\n|\b(?:this|these|following|below|folgenden?|suivante?|siguiente)\b[^.!?\n]{0,40}[.!?\n])",
    re.IGNORECASE)
"""What follows is a text to be worked on."""
WORKED_ON = _any(
    r"translat\w+|summari[sz]\w+|rewrit\w+|rephras\w+|paraphras\w+|proofread|ubersetz\w*|traduis\w*|traduce",
    "翻译|翻訳|怎么说")
SUPPOSED = _any(
    r"pretend\w*|imagine|suppos(?:e|ing)|hypothetical\w*|role.?play\w*|let['’]?s say|what if|if i (?:was|were|had)"
    r"|act as|simulate|in (?:my|the|this|a) (?:story|novel|game|dream|film|movie|book)|stell dir vor|angenommen|imagina"
    "|supongamos|supposons", "假设|假如|如果我是|もし")
PASSING = _any(
    "today|tonight|tomorrow|yesterday|right now|at the moment|just now|this (?:morning|afternoon|evening|week|weekend)"
    "|these days|for now|currently|soon|heute|morgen|gestern|gerade|aujourd['’]hui|demain|hier|en ce moment|hoy|manana"
    "|ayer|ahora", "今天|明天|昨天|现在|今日|今朝|明日")
UNSURE = _any(
    "maybe|perhaps|probably|i (?:think|guess|believe|heard|read|assume|might|may)|not sure|someone said|they say|if"
    "|vielleicht|ich glaube|wenn|falls|peut.etre|je crois|quizas?|tal vez|creo que", "也许|可能|かもしれ|听说")
WISH = _any(
    r"(?:i|we)(?:['’]d| would)? (?:just |also |really |only )?(?:need|want|wish|wonder\w*"
    r"|like to (?:know|see|have|get|ask)|am (?:looking|trying|wondering|asking|searching))"
    r"|i['’]m (?:looking|trying|wondering|asking|searching)"
    "|ich (?:brauche|will|mochte|suche)|j['’]ai besoin|je (?:veux|voudrais|cherche)|necesito|quiero|busco",
    "我想|我要|ほしい|したい")
CHANGED = _any(
    r"no longer|any ?more|any longer|now|nowadays|moved|actually|instead|changed|switched|meanwhile|correction|new|left"
    r"|quit|stopped|started|replaced|used to|jetzt|nicht mehr|umgezogen|stattdessen|maintenant|desormais|demenage|ahora"
    r"|ya no|mudado", "现在|改|搬|不再|今は|変え|引っ越")

_WH = "what|how|why|where|when|which|who|whose"
WONDERING = re.compile(
    rf"{_ONSET}(?:(?:{_WH})(?:\s+\w+)?\s+(?:{_AUX})\b|(?:{_WH})(?:['’]s| (?:about|many|much|to)\b)"
    r"|(?:wie|was|wo|wer|warum|wann|welche[rs]?|gibt es)\b|(?:comment|pourquoi|quel(?:le)?s?|est.ce que|combien)\b"
    r"|(?:como puedo|por que|cual(?:es)?|donde|cuando|cuanto)\b|请问|什么|怎么|为什么|誰|何|どう|なぜ)")
"""A question, though it may have no question mark."""
ASKING = re.compile(
    rf"{WONDERING.pattern}|{_ONSET}(?:(?:{_AUX}|isn['’]t|aren['’]t|doesn['’]t|don['’]t) (?:i|you|we|he|she|it|they"
    r"|there|the|my|your|this|that|these|those|a|an)\b|kannst du\b|konnen sie\b|peux.tu\b|puedes\b)")
"""A question, or the beginning of a sentence that is one if it has no other subject."""
REQUEST = re.compile(
    rf"{_ONSET}(?:(?:can|could|would|will) (?:you|u)\b|i (?:want|need|wish|would like|d like) you\b|i['’]d like you\b"
    r"|let['’]?s\b|let us\b|you (?:must|should|have to|need to)\b"
    r"|(?:write|tell|explain|give|show|make|list|translate|summari[sz]e|help|fix|create|generate|find|suggest|recommend"
    r"|describe|compare|convert|calculate|compute|draft|rewrite|rephrase|define|name|answer|act|pretend|imagine|ignore"
    r"|forget|remember|repeat|say|print|output|use|add|remove|change|update|continue|respond|reply|count|sort|solve"
    r"|check|review|analy[sz]e|look|build|design|implement|provide|plan|outline|format|reveal|disregard|stop|keep|always"
    r"|do not|don['’]t|be|speak|note|save|store|send|follow|treat|assume|include|avoid|make sure|from now on"
    r"|never(?! \w+s\b)|immer|niemals|schreib\w*|erklare?|ubersetze?|zeige?|nenne|gib|hilf|ignorier\w*|toujours"
    r"|ecris|ecrivez|explique\w*|donne\w*|montre\w*|traduis\w*|aide\w*|ignore\w*|siempre|escribe|explica\w*|dame"
    r"|muestra\w*|traduce|ayuda\w*)\b"
    r"|请|帮我|给我|告诉我|写|翻译|忽略|总是|必须)|(?:ください|下さい|教えて|書いて)\W*\Z")
STANDING = _any("always|never|every time|from now on|must|should|prefer|immer|nie|niemals|ab jetzt|toujours|jamais"
                "|desormais|siempre|nunca", "总是|永远|以后|いつも|常に")
"""A request that is not for this moment alone."""
FIRST_PERSON = _any(
    r"i|my|mine|myself|we|our|ours|ich|mein\w*|mir|mich|wir|unser\w*|je|moi|mon|ma|mes|nous|notre|nos|yo|mi|mis|nosotros"
    r"|nuestr[ao]s?|soy|tengo|estoy|vivo|trabajo|prefiero|uso|trabajamos|tenemos|somos", r"\bj['’]",
    "我|私|僕|俺|나는|저는|제가")
YOU_ARE = _any("you(?:['’]re| are| were| have| can| know)|your name|du (?:bist|hast|kannst)|tu es|vous etes|eres",
               "你是|您是|あなたは")
SUBJECT = _any("i|we|he|she|they|my|our|it|you|ich|wir|er|sie|es|je|nous|il|elle|yo|nosotros", r"\bj['’]", "我|私|僕")
RELATION = _any(
    r"(?:(?:mother|mom|mum|father|dad|parent|sister|brother|sibling|wife|husband|spouse|partner|son|daughter|child|kid|baby"
    r"|girlfriend|boyfriend|fiancee?|friend|boss|manager|colleague|co-?worker|neighbou?r|roommate|flatmate|uncle|aunt"
    r"|cousin|nephew|niece|in-law|teacher|student|client|customer|doctor|dog|cat|puppy|kitten|pet)(?:s|['’]s)?"
    r"|(?:grand|step|half).?(?:mother|father|ma|pa|sons?|daughters?|parents?|brother|sister)|children|wives"
    r"|mutter|vater|schwester|bruder|frau|mann|sohn|tochter|kind(?:er)?|freund(?:in)?|chef(?:in)?|kolleg(?:e|in|en)|hund"
    r"|katze|mere|pere|soeur|frere|femme|mari|fils|fille|enfants?|amie?|chien|chat|madre|padre|herman[ao]|espos[ao]"
    r"|marido|hij[oa]s?|amig[oa]|perro|gat[oa])",
    "妈妈|母亲|爸爸|父亲|姐姐|妹妹|哥哥|弟弟|妻子|老婆|丈夫|老公|儿子|女儿|朋友|老板|同事|母|父|姉|妹|兄|弟|妻|夫|息子|娘|友達|上司|犬|猫")

_NOT = _any(
    r"not|no|never|none|nobody|nothing|neither|nor|without|cannot|cant|dont|doesnt|didnt|isnt|wasnt|arent|wont|havent|hasnt"
    r"|non|hardly|rarely|seldom|barely|former|formerly|ex|except|used to|nicht|nichts|kein\w*|nie|niemals|niemand\w*"
    r"|nirgends|weder|ohne|kaum|pas|jamais|aucune?|sans|rien|guere|ne|nunca|jamas|nada|nadie|ni|sin|tampoco|ningun\w*"
    r"|senza|nessun\w*|niente|neppure|neanche|nao|nem|sem|nenhum\w*|ninguem|niet|niets|niks|geen|nooit|zonder|niemand"
    r"|nergens",
    r"n['’]t\b", r"\bn['’](?=[a-z])", "不|没|沒|未|無|无|非(?!常)|ない|なく|なけれ|ません|なかった|ずに|않|못|없")
_AGAINST = _any(
    r"hat(?:e|es|ed|ing)|dislik\w+|detest\w*|loath\w+|avoid\w*|refus\w+|despis\w+|stopped|quit|gave up|given up|lacks?"
    r"|unable|against|hasse|hasst|vermeide\w*|meide[nt]?|evite\w*|odi[oa]|evit[oa]|odei[oa]|aborrece|haat|vermijdt?"
    r"|hekel", "讨厌|討厭|嫌い|苦手|恨|憎")

WEAKENING = _any(
    "only|except|unless|sometimes|rarely|seldom|hardly|almost|nearly|former|formerly|ex|used to|half|instead|without"
    "|non|not|no|never|before|after|until|since|maybe|nur|ausser|manchmal|selten|fast|seulement|sauf|parfois|presque"
    "|solo|excepto|a veces|casi|apenas|soltanto|tranne|quasi|a volte|somente|exceto|as vezes|quase|alleen|behalve|soms"
    "|bijna", "只|除了|有时|だけ|以外|時々")
"""Words that make of a memory another one."""
TURNING = _any(
    "from|to|into|over|than|instead|rather|before|after|above|below|under|until|since|against|on|off|up|down|by|his|her"
    "|their|he|she|they|nach|aus|von|vor|uber|unter|gegen|statt|avant|apres|contre|vers|depuis|desde|hacia|hasta"
    "|antes|despues|contra|sobre|prima|dopo|verso|contro|depois|naar|voor|na|tegen")
"""Small words in which two memories differ: `from Rome to Paris`."""

_GROUPS = {stem(word): group for group, names in {
    "<likes>": "like love enjoy prefer preferred preference favourite favorite fan fond keen adore rather hate dislike "
               "detest loathe despise avoid stand mag liebe liebt lieber bevorzuge bevorzugt hasse hasst aime adore "
               "prefere deteste prefiero prefiere gusta encanta odio",
    "<lives>": "live lives reside residing based located resident moved move home wohne wohnt lebe lebt "
               "habite vis vit vivo vive",
    "<works>": "work job employed employee profession occupation career arbeite arbeitet travaille trabajo trabaja",
    "<named>": "name named called call heisse heisst appelle llamo llama",
    "<learns>": "learn study studying studied student lerne lernt studiere studiert apprends etudie aprendo estudio",
    "<has>": "have has had having own got",
    "<uses>": "use uses using benutze nutze utilise uso usa",
    "<knows>": "know knowledge familiar",
    "<speaks>": "speak fluent spreche spricht parle hablo habla",
    "<wants>": "want wish goal aim plan intend hope",
    "<allergic>": "allergic allergy allergisch allergique alergico alergica",
    "<born>": "born birthday birthdate geboren",
    "<year>": "year yr age aged old jahre ans anos",
    "<spouse>": "wife husband spouse married",
    "<mother>": "mother mom mum", "<father>": "father dad", "<child>": "child children kid",
    "<writes>": "write writing wrote code coding program programming",
    "<builds>": "build built develop make made create",
}.items() for word in names.split()}
_EMPTY = frozenset(re.findall(r"\S+", """
a an the and or but of in on at to for from with by as into about than then that this these those it its is are am
was were be been being do does did will would can could should may might must i me my mine myself we us our you your
yours he him his she her they them their who which what when where how why also very really so too just only not no
never any some all more most much many user person users please there here if because while yes well ok says said
der die das und ist ich nicht ein eine einen einem einer mein meine meinen meiner auf fur von sich auch aber oder wie
zum zur bin sehr mit im am zu den dem des kein keine
le la les un une des du de et est je ne pas mon ma mes sur dans pour avec que qui suis tres
el los las una unos y o yo mi mis en con por para es soy no muy del al
"""))
"""Words without which a fact is as well grounded."""
GLUE = frozenset({"<has>", "<uses>"})
"""Ways to put something that need no word of the person's."""


def meaning(word: str) -> str:
    """A folded word as it is compared with what was said: its stem, or the name that it shares with its synonyms. What
    somebody hates has the same name as what they like; `denies` tells them apart."""
    return _GROUPS.get(stem(word), stem(word))


def meanings(text: str) -> tuple[str, ...]:
    """The words that say something, in their order, as they are compared."""
    return tuple(meaning(word) for word in words(text) if word not in _EMPTY)


def denials(text: str) -> tuple[int, int]:
    """How often a text says that something is not so, and that it is disliked."""
    return len(_NOT.findall(text)), len(_AGAINST.findall(text))


def denies(text: str) -> bool:
    """Whether a clause says that something is not so, or that it is disliked; two of these cancel out."""
    return bool(_NOT.search(text)) != bool(_AGAINST.search(text))
