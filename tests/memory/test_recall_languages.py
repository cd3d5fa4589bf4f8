"""What is recalled, and what must not be, where the person writes in another language than English."""

from __future__ import annotations

from pathlib import Path

import pytest
from book_kit import Book

from kvchat.memory.recall import recalled
from kvchat.prompt.message import Message, Node, Role, node, system_message


def found(folder: Path, memory: str, question: str, *said: str) -> list[str]:
    """What is recalled of one memory at a question, after what was said on the branch."""
    path: list[Node] = [node(None, system_message(""), 1.0)]
    for text in said:
        path.append(node(path[-1], Message(Role.USER, text), 2.0))
    book = Book(folder)
    try:
        book.memories.add(memory)
        blocks = recalled(book.memories, question, path, tokens=300, profile_tokens=0)
        return [entry.text for block in blocks for entry in block.entries]
    finally:
        book.close()


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("Mein Hund heißt Günther der Pudel", "Wie oft muss mein Pudel raus?"),
        ("Mon médecin s'appelle Éric Lefèvre", "Où habite mon médecin Lefèvre?"),
        ("Der Server hat 1.500 GB für Fotos", "Reicht der Server für Fotos?"),
        ("We have three cats named Momo", "How old can my cat Momo get?"),
    ],
)
def test_what_the_person_said_on_the_branch_is_not_told_again_in_any_language(
    said: str, question: str, tmp_path: Path
) -> None:
    assert found(tmp_path / "unsaid", said, question, "Hello") == [said]
    assert found(tmp_path / "said", said, question, f"{said}.") == []


@pytest.mark.parametrize(
    ("said", "memory"),
    [
        ("Der Server hat 1500 GB für Fotos", "Der Server hat 1.500 GB für Fotos"),
        ("We have 3 cats named Momo", "We have three cats named Momo"),
        ("MEIN HUND HEISST GU\u0308NTHER DER PUDEL", "Mein Hund heißt Günther der Pudel"),
    ],
)
def test_what_was_said_in_another_spelling_is_not_told_again(said: str, memory: str, tmp_path: Path) -> None:
    assert found(tmp_path, memory, "Reicht der Server für die Fotos von Momo und dem Pudel?", said) == []


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("Welche Datei ist die größte im Ordner?", "Speichert jede Datei doppelt"),
        ("Wie viel Zeit braucht ein Ei zum Kochen?", "Hat montags keine Zeit"),
        ("Erkläre mir die Frage nach dem Sinn des Lebens", "Stellt jede Frage zweimal"),
        ("Was ist das beste Beispiel für Rekursion?", "Will immer ein Beispiel sehen"),
        ("Wie lautet die Antwort auf Aufgabe 3?", "Mag kurze Antwort"),
        ("Wie heißt die Stadt am Fluss Po?", "Wohnt in einer Stadt mit Hafen"),
        ("Nenne mir drei Möglichkeiten, Geld zu sparen", "Hat Geld in Fonds angelegt"),
        ("Wie war die Woche an der Börse?", "Arbeitet vier Tage pro Woche"),
        ("In welchem Jahr fiel die Mauer?", "Macht jedes Jahr Urlaub auf Sylt"),
        ("Kannst du mir einen Satz übersetzen?", "Hört jeden Satz von Beethoven"),
        ("Welche Arbeit hat ein Notar?", "Fährt mit dem Rad zur Arbeit"),
        ("Quelle est la question la plus posée?", "Pose chaque question deux fois"),
        ("Combien de temps faut-il pour cuire un œuf?", "N'a pas de temps le lundi"),
        ("¿Cuánto tiempo tarda en cocerse un huevo?", "No tiene tiempo los lunes"),
        ("¿Cuántas semanas tiene un año?", "Trabaja cuatro días por semana"),
        ("Quanto tempo ci vuole per cuocere un uovo?", "Non ha tempo il lunedì"),
        ("Quantas semanas tem um ano?", "Trabalha quatro dias por semana"),
        ("Hoeveel tijd kost het koken van een ei?", "Heeft op maandag geen tijd"),
        ("今天天气怎么样？", "用户不喜欢炎热的天气"),
        ("给我推荐一本书", "用户喜欢重庆火锅"),
        ("怎么做番茄炒蛋？", "用户对花生过敏"),
        ("什么是量子纠缠？", "用户在一家公司工作"),
        ("Welk bestand is het grootste?", "Bewaart elk bestand dubbel"),
    ],
)
def test_an_everyday_word_brings_nothing_up(question: str, memory: str, tmp_path: Path) -> None:
    assert found(tmp_path, memory, question) == []


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("Wie alt wird ein Pudel?", "Der Pudel heißt Günther"),
        ("Was frisst mein Günther?", "Der Hund heißt Günther"),
        ("Brennt mein Brennofen zu heiß?", "Hat einen Brennofen im Keller"),
        ("Wie alt werden Katzen?", "Hat eine Katze namens Mimi"),
        ("Wie alt wird eine Katze?", "Hat zwei Katzen"),
        ("我对什么过敏？", "用户对花生过敏"),
        ("给我推荐一家火锅店", "用户喜欢重庆火锅"),
        ("Quel vin avec le canard?", "N'aime pas le canard"),
        ("why does `ls` fail with EACCES in /srv/data", "Mounts /srv/data from the NAS"),
    ],
)
def test_what_belongs_is_recalled(question: str, memory: str, tmp_path: Path) -> None:
    assert found(tmp_path, memory, question) == [memory]
