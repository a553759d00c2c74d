"""A random generator goes in, a short story and the request for it come out."""

import random
from collections.abc import Mapping

from spectiny.corpus.people import people
from spectiny.corpus.phrasing import article, sentence
from spectiny.document import Document

_ROLES = (
    "farmer baker sailor painter teacher gardener tailor fisher clockmaker singer shepherd carpenter beekeeper potter "
    "postman miller"
).split()
_PLACES = (
    "village forest harbor valley castle meadow lighthouse market palace town orchard library mill desert garden "
    "park"
).split()
_OBJECTS = (
    "key lantern map flute coin kite umbrella compass mirror bell feather ring book scarf basket clock shell hat violin "
    "letter"
).split()
_LOOKS = "old golden small red silver shiny blue broken strange heavy green wooden".split()
_TRAITS = "kind brave shy curious lonely cheerful patient clever quiet proud".split()
_ANIMALS = "fox cat dog owl rabbit goat crow horse mouse donkey".split()
_WEATHER = "rain snow wind fog sunshine thunder".split()

_OPENINGS = (
    "<once upon a time, |long ago, |one year, |>there <was|lived> a $trait $role <named|called> $p <in|near> the $place.",
    "$p was a $trait $role who lived <in|near|close to> <the|a> $place.",
    "<in|near> the $place <there |>lived $p, a $trait $role.",
    "everyone <in|near> the $place knew $p, the $trait $role.",
)
_MOODS = (
    "<every|each> <day|morning|evening>, $they <worked hard|got up early|took a long walk|fed the $animal>.",
    "$they <had|owned> <only |>a small house and <a|one> $animal.",
    "$they <liked|loved> <nothing more than quiet evenings|the smell of bread|the sound of the $weather>.",
    "<people said|everyone said|it was true> that $they was <very |>$trait.",
)
_DAYS = (
    "one <day|morning|evening|night>, ", "on a day of $weather, ", "<early one|late one> <morning|evening>, ",
    "after days of $weather, ",
)  # fmt: skip

# Each plot is a list of beats; a beat is one sentence in several wordings, {day} stands for a random time.
_PLOTS: Mapping[str, tuple[str, ...]] = {
    "finds $a_thing": (
        "{day}$p <found|saw|discovered> $a_thing <under a tree|in the grass|by the road|behind a stone>.",
        "<it|the $object> <seemed to belong to someone|looked <very |>precious|was like nothing $they had seen before>.",
        "$p <asked|went to> <every neighbor|all the neighbors|everyone>, but <nobody|no one> <knew it|had lost it>.",
        "<at last|finally|in the end>, $q <came|arrived> and <cried|said|called>, \"<That|This> is my $object!\"",
        "$p <gave it back|handed it over> <with a smile|at once|gladly>.",
    ),
    "loses $a_thing": (
        "<$their greatest treasure|what $they loved most> was $a_thing.",
        "{day}the $object was <gone|lost|nowhere to be found>.",
        "$p <looked|searched> <everywhere|in every corner|high and low> and <began to cry|felt <very |>sad|could not sleep>.",
        "<then|luckily,|after a while> $q <came by|heard about it> and <offered to help|helped to look>.",
        "they found the $object <in the nest of a crow|under the bed|behind the door|in the old well>.",
        "$p <laughed|jumped|danced> <with|for> joy.",
    ),
    "helps a lost $animal": (
        "{day}a <little|young|hungry> $animal <stood|sat|waited> <at|in front of> the door.",
        "it was <cold|wet|tired> and <had lost its way|could not find its home>.",
        "$p gave it <some milk|a warm place|bread and water> and <sang to it|spoke softly>.",
        "<the next day|in the morning> they <set out|walked> <together |>to <find its home|look for its owner>.",
        "$p <took|carried> $a_thing <along|in one hand> to <find the way|be safe>.",
        "<the owner was|it belonged to> $q, who <thanked $them|was <very |>happy>.",
    ),
    "repairs $a_thing for $q": (
        "{day}$q <came|knocked at the door> with $a_thing.",
        "\"<Can you repair it|Can you help me|Could you fix it>?\" $q asked.",
        "$p <looked at|turned> the $object <for a long time|carefully|again and again>.",
        "<all night|for three days|until morning>, $they <worked|tried> and <did not give up|did not sleep>.",
        "<at last|finally|in the end> the $object <was as good as new|worked again|was whole again>.",
        "$q <paid with|brought> <a cake|a basket of apples|a song|ten coins>.",
    ),
    "makes friends with $q": (
        "$p and $q <did not like each other|had never <talked|spoken>|were <old |>rivals>.",
        "{day}<both|the two> <wanted to buy|saw|reached for> the same $object.",
        "<it was|they saw> $a_thing, and <there was only one|neither would let go>.",
        "\"<It is mine|I saw it first|Let it go>!\" <said|shouted|cried> $q.",
        "<then|suddenly> the <$weather came|$animal jumped between them>, and <both|they> <had to laugh|began to laugh>.",
        "<from then on|after that> they <shared|used> the $object <together|every week>.",
    ),
    "sets out to find $a_thing": (
        "$p had <heard|read|dreamed> of $a_thing <far away|beyond the hills|that could bring luck>.",
        "{day}$they <packed a bag|took some bread|said goodbye> and <left|went|set out>.",
        "the way was <long|hard|steep>, and the $weather <did not stop|made it harder>.",
        "<on the way|in a dark wood|after two days> $they met $q, who <knew the way|asked to come along>.",
        "together they <found|dug up|reached> the $object <under a rock|in a cave|on top of a tower>.",
        "<but|and> $p <left it there|gave it to $q|took it home>, <for|because> <the way was worth more|friends matter more>.",
    ),
    "surprises $q with $a_thing": (
        "<soon|the next day> it was the birthday of $q, <and|but> $p had <no gift|no money|no idea>.",
        "{day}$they <saw|remembered|found> $a_thing <in the attic|in an old box|in a shop>.",
        "$p <cleaned|polished|painted> it <until it shone|for hours|with great care>.",
        "<on the day|in the evening> $q <opened|unpacked> the <gift|box> and <gasped|smiled|could not speak>.",
        "\"<It is wonderful|Thank you|I will keep it forever>,\" <said|whispered> $q.",
    ),
    "learns to share $a_thing": (
        "$p <owned|had> $a_thing and <never let anyone touch it|kept it in a locked box>.",
        "{day}$q <asked for|needed> the $object <for one day|because of the $weather|to help a sick $animal>.",
        "\"<No|Never>,\" <said|answered> $p, \"<it is mine|you will break it>.\"",
        "<but|that night> $p <could not sleep|felt bad|thought about it>.",
        "<in the morning|at sunrise|the next day> $they <brought|lent|gave> the $object to $q.",
        "$q <used it well|was glad> and <brought it back|returned it> <with flowers|with honey|that evening>.",
    ),
}  # fmt: skip
_ENDINGS = (
    "<from that day|since then|after that>, $p and $q were <good|best|close> friends.",
    "<and|so> $p <went home|walked home> <happy|with a light heart|through the $weather>.",
    "<that night|in the evening> <they|the two> <ate soup|drank tea|sat by the fire> and <told stories|sang>.",
    "<people still tell|the people of the $place still tell> the story of the $role and the $object.",
    "<$p never forgot that day|nobody forgot that day>.",
)
_MORALS = (
    (
        "<it shows that|they learned that|everyone saw that> <kindness comes back|patience pays|a friend is worth more "
        "than gold|courage helps>."
    ),
)
_REQUESTS = (
    "<write|tell|tell me> a <short |>story about a $trait $role <named|called> $p who {plot}.",
    "<please |><write|tell me> a <short |little |>story: $p, a $role <in|near> the $place, {plot}.",
    "<I would like|I want> a <short |>story <in which|where> the $role $p {plot}.",
    "<can you tell|make up> a story <set in|from> the $place? $p, a $trait $role, {plot}.",
    "$p is a $trait $role. <one day,|then> $p {plot}. <write|tell> <the|this> story.",
)


def story(rng: random.Random) -> Document:
    """Return a story; its name, place, object and plot are those of the request, the rest is free."""
    hero, friend = people(rng, 2)
    look, thing = rng.choice(_LOOKS), rng.choice(_OBJECTS)
    fields: dict[str, object] = {
        "p": hero.name, "q": friend.name, "they": hero.they, "them": hero.them, "their": hero.their,
        "role": rng.choice(_ROLES), "place": rng.choice(_PLACES), "object": thing, "a_thing": article(f"{look} {thing}"),
        "trait": rng.choice(_TRAITS), "animal": rng.choice(_ANIMALS), "weather": rng.choice(_WEATHER),
    }  # fmt: skip
    plot = rng.choice(list(_PLOTS))
    beats = [rng.choice(_OPENINGS), *rng.sample(_MOODS, rng.randint(0, 2))]
    beats += [beat.replace("{day}", rng.choice(_DAYS)) for beat in _PLOTS[plot]]
    beats += [_ENDINGS[index] for index in sorted(rng.sample(range(len(_ENDINGS)), rng.randint(1, 2)))]
    prompt = rng.choice(_REQUESTS).replace("{plot}", plot)
    if rng.random() < 0.3:
        beats.append(rng.choice(_MORALS))
        prompt += " <end with a moral|the story has a moral|add a moral>."
    prompt = ". ".join(part[:1].upper() + part[1:] for part in sentence(rng, prompt, fields).split(". "))
    text = " ".join(sentence(rng, beat, fields) for beat in beats)
    return Document("story", prompt, text)
