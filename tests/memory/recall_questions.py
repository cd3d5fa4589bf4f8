"""A person's memories, and questions with the memories that belong to each: what recall is measured on.

Written before recall was tuned. `BELONGS` has the keys of the memories a helpful friend would think of at the
question; anything else that is recalled counts as wrong. `NONE` are questions to which no memory belongs, many of them
with words that stand in some memory in another sense.
"""

from __future__ import annotations

_LINES = """
units: Prefers metric units.
short: Prefers short answers without an introduction.
dutch: Speaks Dutch at home and English at work.
ghent: Lives in Ghent, Belgium, in a terraced house from 1932.
name: Name is Marieke.
job: Works as a backend developer at a parcel company called Vlotpost.
tabs: Prefers four spaces to tabs in Python.
editor: Uses Neovim with the Catppuccin theme.
shell: Uses the fish shell on the laptop.
laptop: Laptop is a ThinkPad T14 with 32 GB of memory, running Fedora.
typing: Types with a Colemak layout.
chair: Has back pain after long hours in the desk chair.
celsius: The oven shows Celsius only.
nopun: Dislikes puns and emoji in answers.
citations: Wants sources for medical claims.

peanut: Is allergic to peanuts.
lactose: Husband Pieter is lactose intolerant.
vegetarian: Daughter Noor has been vegetarian since January.
sourdough: Keeps a sourdough starter called Bruno, fed on rye flour.
stand: Owns a KitchenAid stand mixer and a cast iron Dutch oven.
ramen: Favourite ramen place is Umamido on the Korenmarkt.
coffee: Drinks filter coffee made with a Hario V60, beans from Or in Ghent.
cilantro: Thinks coriander tastes of soap.
induction: Cooks on an induction hob since the kitchen was rebuilt.
budgetfood: Spends about 140 euros a week on groceries.
jam: Makes quince jam every October.
knife: Sharpens kitchen knives on a 1000 grit whetstone.
beer: Brews beer in the cellar, the last batch was a saison.
yeast: The saison was fermented with Belle Saison yeast at 26 degrees.
bbq: Bought a kamado barbecue in May.

dog: Has a dog, a border collie named Fenna.
dogfood: Fenna gets sick from chicken and eats lamb kibble.
vet: The vet is Dr. Claes in the Brugsepoort.
agility: Trains agility with Fenna on Thursday evenings.
tick: Fenna had Lyme disease in 2024.
cat: The neighbour's cat Miso sleeps in the greenhouse.
hens: Keeps three hens, which are fed twice a day.
fox: A fox took two hens last winter.

husband: Husband Pieter teaches physics at a secondary school.
noor: Daughter Noor is 15 and plays handball.
wout: Son Wout is 11 and is crazy about trains.
dyslexia: Wout has dyslexia and reads with a special font.
sister: Sister Lotte lives in Porto with her partner Rui.
mother: Mother lives in a care home in Aalst and has dementia.
father: Father died in 2019 and was a carpenter.
inlaws: Parents-in-law own a holiday flat in De Haan.
anniversary: Wedding anniversary is on 14 June.
birthday: Lotte's birthday is on 3 March.
godchild: Is godmother of Elise, who was born in August 2023.
neighbour: The neighbour Karim repairs bicycles.
bestfriend: Best friend Sanne moved to Oslo for a job at a wind energy company.
handball: Noor broke her wrist at handball in September.
scouts: Wout goes to the scouts on Sunday afternoons.
school: Noor goes to the Sint-Bavo school and learns Latin.
exam: Noor's exams begin on 9 December.

kiln: Has a Rohde kiln in the shed that trips the breaker above 1200 degrees.
glaze: Is testing a celadon glaze with 1 % iron oxide.
clay: Throws with a stoneware clay from Westerwald.
wheel: Bought a second-hand Shimpo potter's wheel.
cones: Fires to cone 6 with a slow cooling from 1100 degrees.
market: Sells mugs at the Christmas market in Ledeberg.
crack: Large plates crack at the rim while drying.
studio: Rents a shelf at a shared studio in the Dok Noord area.
plaster: Made plaster moulds for slip casting small bowls.

postgres: Vlotpost runs PostgreSQL 15 with a replica in Frankfurt.
billing: Leads the rewrite of the billing service from PHP to Go.
deadline: The billing rewrite must be done before the end of March.
kafka: Decided to use NATS rather than Kafka for parcel events.
invoice: Invoice numbers must have no gaps, for the Belgian tax office.
monorepo: The team keeps all services in one monorepo built with Bazel.
ci: The CI runs on self-hosted GitLab runners that are short of disk.
manager: Manager is Joris, who wants a status mail every Friday.
teammate: Teammate Anouk is on maternity leave until February.
oncall: Is on call every third week.
incident: In October a migration without a lock timeout stopped the sorting hall for 40 minutes.
flags: Feature flags are kept in Unleash.
tracing: Traces go to Tempo, logs to Loki.
rounding: Billing amounts are stored in cents as integers.
vat: VAT is rounded per invoice line, not per invoice.
review: Code reviews at work need two approvals.
k8s: The services run on Kubernetes at OVH.
cron: The nightly invoice job starts at 02:30 Brussels time.
testdb: Integration tests use testcontainers with a PostgreSQL image.
gopher: Is new to Go and comes from ten years of PHP.
sqlc: Uses sqlc for typed queries in the billing service.
pdf: Invoices become PDF through Typst.
barcode: Parcel labels carry a GS1-128 barcode.
carrier: The Spanish carrier's API allows 10 requests a second.
retry: Retries to carriers use exponential backoff with jitter, at most six.
salary: Asked for a raise in the talk of November.
hybrid: Works from home on Mondays and Wednesdays.
standup: The daily standup is at 9:15.
conference: Gives a talk on idempotent consumers at a meetup in Antwerp in February.
slides: Makes slides with Typst and Polylux.

nas: The NAS is a Synology DS220+ with two 4 TB disks.
proxmox: Runs Proxmox on a Lenovo Tiny in the cupboard.
homeassistant: Home Assistant controls the heating and the blinds.
zigbee: Zigbee coordinator is a Sonoff dongle.
pihole: DNS at home goes through a Pi-hole.
backup: Backs up the photos with restic to Backblaze.
router: The router is a Fritzbox 7590.
wireguard: Reaches home over WireGuard.
llm: Runs a local Qwen model on a used RTX 3090.
printer: The 3D printer is a Prusa MK4.
petg: Prints in PETG because PLA got soft in the car.
nozzle: Uses a 0.6 mm nozzle for vases.
solar: The roof has 12 solar panels facing south-west.
battery: Wants a home battery, waits for lower prices.
heatpump: A heat pump from Daikin was installed in 2023.
capacity: Pays the Flemish capacity tariff, so peaks above 4 kW cost extra.
car: Drives a Kia Niro EV from 2021.
charger: The wall box is limited to 3.7 kW.
bike: Rides a Gazelle cargo bike to work.
tyre: The cargo bike has Schwalbe Marathon tyres, 20 inches in front.
train: Takes the IC train to Brussels on Tuesdays.

garden: The garden is 8 by 20 metres with heavy clay soil.
tomatoes: Tomatoes got blight in the last two summers.
greenhouse: Built a greenhouse from old windows.
quince: A quince tree stands at the back of the garden.
compost: The compost heap stays cold and wet.
slugs: Slugs eat the lettuce every spring.
lawn: Replaced the lawn with clover.
roses: Roses along the wall suffer from black spot.
rain: A 5,000 litre rainwater tank feeds the toilets and the garden.
figs: The fig tree freezes back nearly every winter.
dahlias: Digs up the dahlias in November.
bees: Wants to keep bees and takes a course in spring.

running: Runs 30 km a week along the Leie.
marathon: Trains for the Rotterdam marathon in April.
knee: The left knee hurts after runs of more than 18 km.
shoes: Wears Brooks Ghost shoes, size 41.
pace: Half marathon best is 1:52.
physio: Physiotherapist Hilde advised single-leg squats.
sleep: Sleeps badly before the days on call.
migraine: Gets migraines from red wine.
pill: Takes levothyroxine in the morning.
glasses: Wears varifocal glasses since the summer.
dentist: Grinds teeth at night and has a splint.
swimming: Swims in the Rozebroeken pool in winter.
yoga: Gave up yoga after two months.
blood: Blood type is O negative.
pollen: Has hay fever from birch pollen.
vitamin: Takes vitamin D from October to March.

guitar: Plays a 1998 Takamine acoustic guitar.
fingerstyle: Learns Blackbird by the Beatles in fingerstyle.
choir: Sings alto in a choir that rehearses on Tuesday nights.
requiem: The choir performs Fauré's Requiem in March.
books: Reads mostly science fiction, loves Ursula Le Guin.
bookclub: The book club reads Klara and the Sun this month.
films: Fell asleep in every Marvel film.
chess: Plays chess online with a rating of about 1450.
caro: Answers e4 with the Caro-Kann.
crossword: Does the crossword of De Standaard on Saturdays.
camera: Photographs with a Fujifilm X-T3 and a 35 mm lens.
darkroom: Develops black and white film in the bathroom.
lego: Wout builds a Lego model of the Antwerp station.
boardgame: Favourite board game is Wingspan.
podcast: Listens to 99% Invisible while commuting.
festival: Goes to Gent Jazz every July.

japanese: Learns Japanese, at the level of JLPT N4.
anki: Learns kanji with Anki, 15 new cards a day.
kyoto: Travels to Kyoto with Noor in April 2027.
ryokan: Booked the ryokan Shiraume for two nights.
interrail: Did Interrail to Lisbon in 2003.
norway: Wants to visit Sanne in Oslo by train.
camper: Sold the camper van in 2022.
flying: Avoids flying within Europe.
passport: The passport runs out in May 2027.
ski: Broke a collarbone while skiing in Les Arcs.
hiking: Walked the GR 20 in Corsica in 2018.
tent: Has a two-person Hilleberg tent.
portugal: Spends Christmas in Porto with Lotte.
seasick: Gets seasick on ferries.

mortgage: The mortgage has a fixed rate of 1.6 % until 2034.
etf: Saves 300 euros a month into a world ETF.
pension: Has a pension plan at AG.
will: Wants to write a will with a notary.
insurance: Home insurance is with Ethias.
tax: Deducts childcare in the tax return.
donation: Gives monthly to Artsen Zonder Grenzen.
inheritance: Inherited a carpenter's workbench and hand planes from father.
bank: Keeps current account at Argenta.

roof: The flat roof of the extension leaks at the skylight.
bathroom: Wants to renovate the bathroom in 2027 for at most 15,000 euros.
damp: The cellar wall is damp on the north side.
windows: The front windows still have single glazing.
floor: Oiled the oak floor with Rubio Monocoat.
attic: The attic is insulated with cellulose.
paint: The hall is painted in Farrow and Ball Skimming Stone.
asbestos: The shed roof contains asbestos.
door: The front door sticks in wet weather.
stairs: The stairs creak at the third step.
workbench: The workbench stands in the attic.
bookcase: Is building an oak bookcase with dovetail joints.
saw: Bought a Japanese pull saw for dovetails.
router_tool: Owns a Festool plunge router.

volunteer: Helps on Saturdays at the repair café in Ledeberg.
council: Is on the parents' council of Wout's school.
vote: Helped to count votes at the last election.
language_help: Gives Dutch lessons to a Syrian family.
petition: Fights for a car-free school street.
novel: Writes a novel about a lighthouse keeper's daughter.
chapter: The novel has 14 chapters, the ninth one does not work.
tense: The novel is told in the present tense.
beta: Sanne reads the drafts of the novel.
poem: Wrote a poem for the funeral of father.
blog: Blogs at a static site made with Hugo.
domain: The domain of the blog is with Gandi and renews in July.
newsletter: Gave up the newsletter for lack of readers.
mastodon: Is on Mastodon, not on X.

de_kuchen: Backt jeden Sonntag einen Apfelkuchen für die Nachbarin.
de_chor: Singt mit dem Chor im Advent im Dom zu Aachen.
fr_velo: Répare le vélo de Karim contre des leçons de couture.
fr_cave: La cave est trop humide pour le vin.
ja_cat: 妹はポルトで猫を二匹飼っている。
zh_tea: 喜欢喝乌龙茶，不喜欢绿茶。
es_abuela: La abuela de Rui vive en Salamanca.
nl_fiets: Wil een elektrische fiets kopen voor de rit naar Aalst.
"""

MEMORIES: dict[str, str] = dict(line.split(": ", 1) for line in _LINES.strip().splitlines() if line)

BELONGS: list[tuple[str, set[str]]] = [
    ("What can I use in place of peanut butter in this satay sauce?", {"peanut"}),
    ("My kiln trips the breaker again. What could I check?", {"kiln"}),
    ("How long should I fire stoneware mugs at cone 6?", {"cones", "clay"}),
    ("Why does my celadon glaze turn brown instead of green?", {"glaze"}),
    ("The rim of my plates cracks while drying, what helps?", {"crack"}),
    ("Which kibble would you recommend for Fenna?", {"dogfood", "dog"}),
    ("Can my dog eat salmon?", {"dog", "dogfood"}),
    ("Fenna limps on the left front paw. Could it be the Lyme disease again?", {"tick", "dog"}),
    ("Write a message to the vet to cancel the appointment.", {"vet"}),
    ("Plan a dinner that Noor can eat too.", {"vegetarian", "noor"}),
    ("Suggest a birthday present for Lotte.", {"birthday", "sister"}),
    ("What would be a good gift for our wedding anniversary?", {"anniversary"}),
    ("Pieter wants dessert. Which cheesecake works without lactose?", {"lactose", "husband"}),
    ("How do I get my sourdough starter active again after two weeks in the fridge?", {"sourdough"}),
    ("How coarse should I grind for the V60?", {"coffee"}),
    ("Which yeast did I use for the saison?", {"yeast", "beer"}),
    ("When does my sister have her birthday?", {"birthday", "sister"}),
    ("Draft the Friday status mail for Joris.", {"manager"}),
    ("How do I add a lock timeout to a PostgreSQL migration?", {"postgres", "incident"}),
    ("How would I model invoice numbers without gaps in PostgreSQL?", {"invoice", "postgres"}),
    ("In the billing service, should I round VAT per line?", {"vat", "billing", "rounding"}),
    ("Why did we decide against Kafka?", {"kafka"}),
    ("How does NATS JetStream compare for parcel events?", {"kafka"}),
    ("Our GitLab runners are out of disk again.", {"ci"}),
    ("How do I write a Bazel rule for sqlc?", {"monorepo", "sqlc"}),
    ("Explain goroutine leaks to me; how would a PHP developer see them?", {"gopher", "billing"}),
    ("Which testcontainers module do I need for integration tests?", {"testdb"}),
    ("How do I set up rate limiting for the Spanish carrier?", {"carrier"}),
    ("Write the backoff for carrier retries.", {"retry", "carrier"}),
    ("Make an abstract for my talk on idempotent consumers.", {"conference"}),
    ("How do I centre a picture in Typst?", {"slides", "pdf"}),
    ("Is Unleash able to do gradual rollouts?", {"flags"}),
    ("How do I query Loki for errors of the last hour?", {"tracing"}),
    ("Which disks fit into the Synology DS220+?", {"nas"}),
    ("Restic is slow with Backblaze, what can I tune?", {"backup"}),
    ("How do I back up Proxmox containers to the NAS?", {"proxmox", "nas"}),
    ("Home Assistant loses the Zigbee sensors every night.", {"homeassistant", "zigbee"}),
    ("Which quantisation of Qwen fits on a 3090?", {"llm"}),
    ("What retraction should I use for PETG on the Prusa?", {"petg", "printer"}),
    ("Should I charge the Kia at night because of the capacity tariff?", {"car", "capacity"}),
    ("Does a home battery pay off with 12 solar panels?", {"battery", "solar"}),
    ("The heat pump makes a humming noise, should I call Daikin?", {"heatpump"}),
    ("How can I prevent blight on my tomatoes next summer?", {"tomatoes"}),
    ("My compost is wet and smells.", {"compost"}),
    ("How do I keep slugs away from lettuce without poison?", {"slugs"}),
    ("When should I prune the quince tree?", {"quince"}),
    ("How do I store dahlias over the winter?", {"dahlias"}),
    ("How do I protect my hens from the fox?", {"hens", "fox"}),
    ("Make a training plan for the Rotterdam marathon.", {"marathon"}),
    ("My knee hurts again after the long run.", {"knee"}),
    ("Which exercises did Hilde give me?", {"physio"}),
    ("Can I take the vitamin together with levothyroxine?", {"pill", "vitamin"}),
    ("Could red wine be behind my migraines?", {"migraine"}),
    ("My hay fever starts, is birch already flowering?", {"pollen"}),
    ("Show me the fingerstyle pattern of Blackbird.", {"fingerstyle"}),
    ("Which passages of Fauré's Requiem are hard for altos?", {"requiem", "choir"}),
    ("Give me questions for the book club about Klara and the Sun.", {"bookclub"}),
    ("What is White's best try against the Caro-Kann?", {"caro"}),
    ("Which lens should I buy next for the Fujifilm?", {"camera"}),
    ("What comes after JLPT N4?", {"japanese"}),
    ("How should I set Anki for kanji?", {"anki"}),
    ("Plan three days in Kyoto for a teenager.", {"kyoto"}),
    ("What do I say when we arrive at the ryokan?", {"ryokan"}),
    ("How do I get to Oslo by train?", {"norway", "bestfriend"}),
    ("Should I refinance the mortgage?", {"mortgage"}),
    ("How much does a notary charge for a will in Flanders?", {"will"}),
    ("The skylight leaks again; what can I do before a roofer comes?", {"roof"}),
    ("How often must an oak floor with Monocoat be oiled?", {"floor"}),
    ("Who may remove the asbestos from the shed?", {"asbestos"}),
    ("What costs can I expect when I renovate the bathroom?", {"bathroom"}),
    ("How do I cut dovetail joints by hand for the bookcase?", {"bookcase", "saw"}),
    ("Chapter nine of my novel drags. How can I fix it?", {"novel", "chapter"}),
    ("Is the present tense right for a novel?", {"tense", "novel"}),
    ("How do I add a tag page to Hugo?", {"blog"}),
    ("When does my domain at Gandi renew?", {"domain"}),
    ("Help me write a letter for a car-free school street.", {"petition"}),
    ("What can I teach in my Dutch lessons for the Syrian family this week?", {"language_help"}),
    ("Wie gelingt der Apfelkuchen ohne Eier?", {"de_kuchen"}),
    ("Comment réparer un vélo dont la chaîne saute ?", {"fr_velo"}),
    ("乌龙茶怎么泡才好喝？", {"zh_tea"}),
    ("Welke elektrische fiets is goed voor lange ritten?", {"nl_fiets"}),
    # Without a word in common, or nearly: a friend would know.
    ("What shall I cook tonight for the family?", {"vegetarian", "lactose", "peanut"}),
    ("Suggest a novel for my holidays.", {"books"}),
    ("How do I convert 350 Fahrenheit for the oven?", {"celsius"}),
    ("Which trainers should I get for long distances?", {"shoes"}),
    ("What is the cheapest way to get to my sister at Christmas?", {"sister", "portugal", "flying"}),
]

NONE: list[str] = [
    "What is the capital of Mongolia?",
    "Explain the difference between TCP and UDP.",
    "Write a haiku about autumn.",
    "Who won the football world cup in 1998?",
    "Translate 'good morning' into Italian.",
    "What is the best way to learn a new skill?",
    "How many days are there in a leap year?",
    "Sort this list of numbers: 9, 4, 15, 2.",
    "What does the word 'ephemeral' mean?",
    "How does a nuclear reactor work?",
    "Tell me a joke.",
    "Summarise the plot of Hamlet in three sentences.",
    "What time is it in Tokyo when it is noon in London?",
    "Write a regular expression that matches an IPv4 address.",
    "How do I reverse a string in JavaScript?",
    "What is the boiling point of ethanol?",
    "Give me a name for a new coffee brand aimed at students.",
    "Why is the sky blue?",
    "Who painted the Night Watch?",
    "How do I write a cover letter?",
    "Explain how interest rates influence inflation.",
    "What are good questions to ask in a job interview?",
    "How do vaccines train the immune system?",
    "What is a closure in programming?",
    "How long does light take from the sun to the earth?",
    "Write an apology to a customer whose delivery was late.",
    "List the planets of the solar system in order.",
    "What causes thunder?",
    "How does the train timetable problem relate to graph theory?",
    "What is the difference between a crocodile and an alligator?",
    "Give me three facts about the history of glass.",
    "Explain the second step of this proof again.",
    "How many people live in Canada?",
    "Is it rude to leave a party early?",
    "What does HTTP status 418 mean?",
    "Compare iron and aluminium as materials for bridges.",
    "Wie hoch ist die Zugspitze?",
    "Quelle est la différence entre un mythe et une légende ?",
    "Hello, can you help me with something?",
    "Please continue.",
    "Why?",
    "Make it shorter and friendlier.",
]

# Written after recall was tuned on the lists above; the bar for a single word was set with these.

LATER_BELONGS: list[tuple[str, set[str]]] = [
    ("Our breaker trips whenever the potter's wheel and the kiln run together.", {"kiln", "wheel"}),
    ("How much rye flour does Bruno need a day?", {"sourdough"}),
    ("Is coriander a good garnish for this soup?", {"cilantro"}),
    ("What should I ask Dr. Claes at the next check of Fenna?", {"vet", "dog"}),
    ("Agility course ideas for a border collie?", {"agility", "dog"}),
    ("How do I explain dyslexia to Wout's teacher?", {"dyslexia"}),
    ("Which Latin texts will Noor read this year?", {"school"}),
    ("Where should we put the quince jam to keep it over winter?", {"jam"}),
    ("Write a friendly reminder to Karim about the bicycle repair.", {"neighbour", "fr_velo"}),
    ("Anouk comes back soon; what should I prepare for her return?", {"teammate"}),
    ("Is an on call compensation mandatory in Belgium?", {"oncall", "ghent"}),
    ("How do I generate GS1-128 barcodes in Go?", {"barcode"}),
    ("My cron job must run at 02:30 also when the clocks change.", {"cron"}),
    ("Does WireGuard work behind a Fritzbox 7590?", {"wireguard", "router"}),
    ("The Pi-hole blocks my bank's website, how can I allow it?", {"pihole"}),
    ("Is a 0.4 mm nozzle better for vases?", {"nozzle"}),
    ("The wall box charges too slowly in winter.", {"charger"}),
    ("What can I grow in a greenhouse in January?", {"greenhouse"}),
    ("Is black spot on roses dangerous for the figs?", {"roses", "figs"}),
    ("I want to break 1:50 on the half marathon.", {"pace", "marathon"}),
    ("Does the splint help against grinding teeth?", {"dentist"}),
    ("Which strings suit a Takamine?", {"guitar"}),
    ("Recommend a Le Guin book for a fifteen-year-old.", {"books", "noor"}),
    ("How can the Hilleberg survive snow?", {"tent"}),
    ("How is my mother's dementia likely to go on?", {"mother"}),
    ("Should I put more than 300 euros into my ETF?", {"etf"}),
    ("The cellar wall is wet again on the north side, what now?", {"damp"}),
    ("How do I restore hand planes that rusted?", {"inheritance"}),
    ("What template does the router bit need for a Festool?", {"router_tool"}),
    ("Give my lighthouse keeper a better motive.", {"novel"}),
    ("Was soll ich im Advent im Dom singen?", {"de_chor"}),
    ("妹の猫は元気かな？", {"ja_cat"}),
    ("Can you check my passport dates for the trip?", {"passport"}),
    ("How do I set up a Mastodon bot?", {"mastodon"}),
]

LATER_NONE: list[str] = [
    "What is the melting point of gold?",
    "Who wrote The Master and Margarita?",
    "Explain recursion to a ten-year-old.",
    "How do I merge two dictionaries in one expression?",
    "How many calories are in a banana?",
    "Draw an ASCII cat wearing a hat.",
    "Which countries border Switzerland?",
    "What is the plural of octopus?",
    "How does public key cryptography work?",
    "Give me five synonyms for 'happy'.",
    "Why do cats purr?",
    "Write a limerick about a programmer.",
    "What is the derivative of x squared times sine of x?",
    "Is Pluto a planet?",
    "How do airplanes stay in the air?",
    "Translate this sentence into German: The weather is nice today.",
    "What are the rules of cricket?",
    "How do I politely decline an invitation?",
    "Convert 10 miles to kilometres.",
    "What happened in 1848?",
    "How can a teacher keep a loud class quiet?",
    "Describe the water cycle for a poster.",
    "Explain what a mutex is.",
    "Write a product description for a wooden chair.",
    "Which is heavier, a litre of milk or a litre of oil?",
    "How do I delete a branch in git?",
    "Tell me about the history of the Suez canal.",
    "What do you think of this plan?",
    "Can you translate the last answer into French?",
    "How do I cook rice in a pot?",
    "What is a good opening line for a speech?",
    "Is a car greener than a bus?",
]

# Written last: of all that was tuned, only the height of the bar and what counts as a name were set with these too.

LAST_BELONGS: list[tuple[str, set[str]]] = [
    ("Does Fenna need a rabies shot for the trip to Porto?", {"dog", "portugal", "sister"}),
    ("I burnt the saison's label in Typst, how do I crop a picture?", {"pdf", "slides", "beer"}),
    ("Our Kubernetes pods at OVH restart at night.", {"k8s"}),
    ("Write a Go test with testcontainers for the invoice job.", {"testdb", "invoice", "cron"}),
    ("How should amounts in cents be shown on the invoice?", {"rounding", "invoice"}),
    ("Which talks are there in Antwerp about idempotent consumers?", {"conference"}),
    ("Can the Daikin heat pump cool the house too?", {"heatpump"}),
    ("My fig tree lost all its leaves in the frost.", {"figs"}),
    ("How do bees get through the winter?", {"bees"}),
    ("What do I wear for running in the rain?", {"running"}),
    ("My physiotherapist wants me to do squats on one leg, for how long?", {"physio"}),
    ("How do I write kanji in the right stroke order?", {"anki", "japanese"}),
    ("Find me a quiet ryokan near Kyoto station.", {"ryokan", "kyoto"}),
    ("What will the mortgage cost after 2034?", {"mortgage"}),
    ("Our attic gets too hot, is cellulose the reason?", {"attic"}),
    ("Which Wingspan expansion is worth it?", {"boardgame"}),
    ("How do I phrase a status mail to Joris about the delayed rewrite?", {"manager", "billing"}),
    ("Could a migraine come from bad sleep?", {"migraine", "sleep"}),
    ("Which varifocal lenses are scratch resistant?", {"glasses"}),
    ("I want to sharpen my knives, is 1000 grit enough?", {"knife"}),
    ("What helps against rust on a cargo bike's chain?", {"bike", "tyre"}),
    ("Recept voor een appeltaart die mijn dochter mag eten?", {"vegetarian"}),
    ("Ist der Chor im Dom mit Orgel?", {"de_chor", "choir"}),
    ("喜欢喝什么茶？", {"zh_tea"}),
]

LAST_NONE: list[str] = [
    "Explain the Monty Hall problem.",
    "What is the longest river in Asia?",
    "How do I undo the last commit?",
    "Rewrite this paragraph in plain English.",
    "What is the difference between a violin and a viola?",
    "Why do leaves change colour?",
    "Give me a workout without equipment.",
    "What are the symptoms of the flu?",
    "How does a transformer model work?",
    "What is a good name for a black horse?",
    "List ten animals that live in the desert.",
    "How old is the universe?",
    "What does 'carpe diem' mean?",
    "Write a SQL query that counts rows per day.",
    "How do I get ink out of a shirt?",
    "Who was the first woman in space?",
    "Explain the offside rule in football.",
    "Could you check the grammar of this sentence?",
    "What is the tallest building in the world?",
    "Create a table of the noble gases.",
    "How do I ask someone for feedback?",
    "Is glass a liquid?",
    "What makes a good leader?",
    "How is cheese made?",
    "Was ist ein Schaltjahr?",
]
