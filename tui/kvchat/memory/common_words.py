"""Words that do not tell what a question is about, though they carry meaning: `time`, `write`, `best`, `wie`.

The rule: such a word alone never brings a memory up. Names, things and terms are left out of the lists on purpose.
"""

from __future__ import annotations

import re

from kvchat.memory.common_nouns import DUTCH, ENGLISH_ONLY, GERMAN, GERMAN_ONLY, ROMANCE
from kvchat.memory.similarity import content_words, folded

_ENGLISH = """
profile preference preferences skill skills decision decisions identity topics misc facts persons projects
ability able above abstract accept access achieve across act action active actual add advice afraid afternoon against
age ago agree ahead aim air alive allow almost alone along already alternative although always among amount answer
anybody anyone anything anyway anywhere apart app appear application apply approach appropriate april area arrange
arrive article aside ask aspect assume ate attach attempt attention august autumn available average avoid away awful
back bad base basic become begin behind believe below benefit beside best better between beyond big bit black blue
body book both bother bottom bought boy break breakfast brief bring broad broke broken brown build business button buy
bye call care careful carry case casual catch cause certain chance change cheap check cheers child choice choose city
clear close closed code cold collect color colour combine come common company compare complete complex computer
concept concern condition confirm connect consider contain content context continue control conversation cook correct
cost count country couple course create current currently customer cut daily dark data date day deal dear december
decide deep define degree depend describe design detail develop difference different difficult dinner direct discuss
divide double doubt draft draw drink drive drop dry each earlier early earth easy eat eaten edit effect effort eight
either element else email end english enough ensure entire equal error especially even evening ever every everybody
everyone everything exact example excellent except exist expect experience explain express extra fact fail fair fall
false familiar family far fast favorite favourite feature february feel few figure file fill film final find fine
finish fire first fit five fix folder follow food foot force forget form formal forward four four-year free frequent
fresh friday friend friendly front full fun function funny further future gain game general gentle gift girl goal
goodbye great green greet group grow guess guide guy half hand handle happen happy hard has head hear heavy help hey
high hint hold home hope hot hour house huge hundred hurt idea ideal identify imagine important impossible improve
include increase indeed individual industry information inside instance instead instruction intend interest internet
interview introduce issue item january job join joke july june keep kept key kid kind kindly language large last late
later lead learn least leave left length less let letter level life light likely limit line link list listen little
live local long look lose lot loud love low lunch mail main maintain major man manage many march mark match matter may
maybe meal mean meaning measure meet member mention message method middle might million mind minor minute miss mistake
mix model moment monday money month moon morning move moved much multiple music must myself name narrow natural near
necessary need needs never new news next nice night nine nobody none normal note nothing notice november number
numerous object obvious occur october offer office often old once one open opinion opposite option order ordinary
original others otherwise outside overall own owns page paid paint pair paragraph part particular pass past pay people
per perfect perform perhaps person personal phone photo phrase pick picture piece place plan play please point polite
position possible practice prefer prepare present pretty prevent previous price probably problem process produce
product program project proper provide purpose put quality question quick quiet quite quote range rate rather reach
read reads ready real reason recent recommend red reduce refer regard regards regular relate remain remember remind
remove repeat replace reply report require research resource rest result return review rewrite ride right role room
rough round rude rule run safe said sample saturday save say screen search season second section seem select sell send
sense sentence separate september serious serve service set setup seven several shall share short show sick side sign
similar simple since sincere sing single sit six size sleep slow small soft software sold solution solve somebody
someone something sometimes somewhere song soon sorry sort sound source space speak special specific spend spring
stand start state stay step still stop story straight strange street strong structure student stuff style subject
success suggest suit summarise summarize summary summer sun sunday support suppose sure surprise table take talk task
teach team tell ten term test text therefore thing think third thought thousand three thursday thx time tip title
today together tomorrow tone tonight top topic total touch toward town translate travel treat true try tuesday turn
two type typical under understand unit unless until update use uses usual valid value various version view visit wait
walk want warm watch water wear weather website wednesday week weekend welcome well wet whether white whole why wide
winter wish without woman wonder word work world worry worth write written wrong yeah year yesterday yet young
"""
_OTHER = """
aan aber al algo alla alle als also am an anche ao as au auch auf aus aux avec bei bien bij bin bis bitte ce ces cet
cette che chi ci com come comme comment como con cosa cual cuando cui da daar dal damit dan dann dans das dass dat de
dei dein del della delle dem den denn der des deze di dich die dies diese dieser difference dir dit do doch doen donde
dont door dos dove du durch e ed een ein eine einem einen einer eines el ela ele ella elle ellos em en entre er era es
esa ese eso essa esse essere est est-ce esta este esto et etre etwas eu euch eux faire fait fare foi fur gaan geen
gegen geht gibt gli goed gut ha haar habe haben hacer had hat hay heb hebben heeft hem het heute hier hij ho hoe hun
ich ihm ihn ihr ik il ils im immer in io is isso ist ja je jede jeden jeder jetzt jij kan kann kein keine konnen
kunnen la las le lei les leur lo loro los lui ma maar mache machen mais man mas me meer mein meine meinem meinen
meiner meme men mes met meu mi mia mich mij mijn minha mio mir mis mit moet moi mon muss muy na naar nach nada nao ne
nel nella nicht niet no noch nog non nos notre nous nu nur o oder of ohne om omdat on onder ons onze ook op os ou over
par para pas pela pelo per perche pero peut peux piu plus por porque pour pourquoi puede puo qual quale quand quando
que quel quelle quelles quello quels quem questa questo qui quien quoi sa sans schon se sehr sein seine sem ser sert
ses seu si sich sie sin sind so sobre soll son sono sont su sua suo sur sus ta te tegen tes ti tiene toch toen toi ton
tot tous tout toute tra tres trop tu uber uit um uma un una und une uno uns unser unter uw van veel vi viel voce vom
von voor vor vos votre vous waar waarom war warum was wat we wel welche welcher welches welke wenn wer werd werden wie
wieder wij wil will wir wird wo worden y ya zal ze zich zij zijn zo zou zu zum zur
"""
_TONGUES = """
african american arabic asian belgian brazilian british bulgarian catalan chinese croatian czech danish dutch english
european finnish flemish french german god greek hebrew hindi hungarian i'd i'll i'm i've indian internet irish
italian japanese korean latin mexican norwegian ok persian polish portuguese romanian russian scottish serbian slovak
spanish swedish swiss syrian thai turkish ukrainian vietnamese welsh
"""
_CHINESE = """用户 推荐 知道 时候 时间 问题 东西 如何 可以 需要 使用 今天 明天 昨天 告诉 帮忙 介绍 建议 解释 翻译 文章
工作 中国 方法 天气 现在 最近 觉得 应该 朋友 生活 世界 公司 学习 名字 电脑 手机 意思 区别 例子 写作 内容 回答 总结"""
FILLING = frozenset("的了吗呢吧啊么是在有和与或不没这那哪个什怎给请把被就都也很会能要想我你您他她它们对一些为户喜")
"""Chinese characters of which no word is made that tells anything."""
_MINE = """my our mine ours mijn onze mein meine meinem meinen meiner unser unsere mon ma mes notre nos mi mis nuestro
nuestra meu minha meus mio mia miei nostro"""

_ALL = _ENGLISH + _OTHER + GERMAN + ROMANCE + DUTCH + _CHINESE
COMMON = frozenset().union(*(content_words(word) for word in re.findall(r"[\w'-]+", _ALL)))
"""Their stems, as `content_words` gives them."""
NO_NAMES = COMMON.union(*(content_words(word) for word in _TONGUES.split()))
"""Stems of words that are written with a capital letter and yet name no one thing."""
MINE = frozenset(folded(word) for word in _MINE.split())
"""What stands before a thing of the person's own: `my kiln`."""


def is_german(text: str) -> bool:
    """Whether a normalised text is German, where every noun is written with a capital letter."""
    tokens = text.split()
    return sum(token in _GERMAN for token in tokens) > sum(token in _NOT_GERMAN for token in tokens)


_GERMAN, _NOT_GERMAN = frozenset(GERMAN_ONLY.split()), frozenset(ENGLISH_ONLY.split())
