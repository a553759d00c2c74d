"""Every argument of every command. Nothing heavy is imported here, so help is there at once.

An option that was not given is absent from the result: defaults stand where they are used, and a command can tell what
its user asked for. Only the help repeats them.
"""

import argparse
import re
from importlib.metadata import version
from typing import Any, NoReturn

LARGEST = 3e38  # a little below the largest number in single precision

_GENERATE = """\
Text streams to standard output as it is accepted. With --json standard output
holds one line, a JSON object; the text is in it and does not stream."""

_CHAT = """\
Answers line by line, with what was said before in view. /help lists the commands: another system turn, seed or method,
statistics, saving, a new beginning. Ctrl-C stops an answer, Ctrl-D leaves."""

_CHECK = """\
Decodes some prompts by every method whose drafter is on this disk and compares the ids with plain decoding under the same
seed, on this machine, in this dtype. Where they differ, the margin of the choice tells a tie from a mistake. The exit code
is 0 if every method is lossless, and 1 if not."""

_CALIBRATE = """\
Draws answers by plain decoding under keyed noise, scores the drafter's blocks along them and fits: how far a tree trusts
the drafter and the noise, the draft temperature that rejection accepts most, and acceptance by depth. The file
calibration.json beside the drafter's weights is used from then on. It changes drafts, never the text."""

_SERVE = """\
Serves /v1/chat/completions, /v1/completions and /v1/models on this machine alone unless --host says otherwise. Requests
that arrive together are decoded together. Needs the extra serve: pip install 'specrun-cli[serve]'."""

_EXPORT = """\
Writes a drafter with its correction head: public is the layout of the head's authors, which SGLang and vLLM load;
speculators is that of the package of this name, for plain drafters, dspark, dflash2 and xpress."""

_CONVERT = """\
A GGUF file of a Llama or Qwen3 becomes a folder with safetensors, config and tokenizer (needs the extra convert);
DeLS-Spec's local_head.pt, with loss_mask_unigram.pt beside it, joins a DFlash drafter. Pickles are opened for tensors alone."""

_BENCH = """\
Decodes the same prompts with every method and with plain decoding, in turns, in one process. Speed is that of decoding
alone; reading the prompts and compiling are not in it. Drafting options go to the methods that know them."""

_TRACE = """\
Decodes like `specrun generate`, and writes what every round drafted, what the target thought of it, what was kept and how
long each stage took. The page is one file without any reference to the network: open it in a browser."""


_TRAIN = """\
Lets the target answer prompts, trains what the recipe names on the answers, and
measures what that gained on held-out ones. The folder receives the weights, a
log, the curves, a record of the run and a checkpoint to go on from."""

_DOCTOR = """\
Says what is here, what is missing for a model and a method, with the command that gets it, and how much memory they take
before it is taken. Loads no weights and downloads nothing. The exit code is 1 if something is missing or does not fit.

With --measure it times rounds of a method: the drafter, its head, growth, and verification of 1 row up to all. The length policies that
read costs (dspark, caddtree, measured) take the table from disk; without one they measure for themselves, once."""

_GENERATE_EPILOG = """\
Lengths: --block-size counts the anchor, which is the last token known so far:
16 rows draft 15 tokens, or 16 with drafters whose anchor row predicts as well.
--tree-budget and --max-new-tokens do not count it.

Tokens per round: the kept tokens of the verification passes over the number of
passes. The token that the target adds to an accepted draft counts; the first
token, which comes from reading the prompt, does not, and neither do tokens cut
off behind a stop.

Many prompts: a line of --input is a JSON object with a prompt (and a system) or
with messages; beside it may stand id and meta, which come back with the answer,
and any option of sampling under its own name (max_new_tokens, temperature, stop
and so on). Line n draws under the seed plus n - 1. A run that was killed goes on
when the same command is given again; a bad line is reported and skipped.

JSON keys: text token_ids prompt_tokens tokens rounds tokens_per_round
acceptance_by_depth plain_rounds method chosen model draft device dtype seed
temperature finish_reason prefill_seconds decode_seconds tokens_per_second
stages. Stages holds seconds by stage, all rounds together; chosen says why auto
took the method.

Block diffusion: the draft streams to standard error and the revised text goes to
standard output. It is lossless against nothing; see specrun methods.

An option that has no effect beside the others is an error."""


def parser() -> "Parser":
    """The parser of the whole command; the chosen command's function is `run` in its result."""
    root = Parser(
        prog="specrun",
        description="Text from language models, several tokens per pass, exactly as the model alone would write it.",
        epilog="`specrun COMMAND --help` lists the options of a command. Completion in bash and zsh:"
        ' eval "$(register-python-argcomplete specrun)".',
    )
    root.add_argument("--version", action=_Version, nargs=0, help="print versions and stop")
    root.set_defaults(run=_no_command)
    commands = root.add_subparsers(metavar="COMMAND", title="commands")
    _generate(
        commands.add_parser(
            "generate",
            help="continue a prompt",
            description=_GENERATE,
            epilog=_GENERATE_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _chat(commands.add_parser("chat", help="talk with a model in the terminal", description=_CHAT))
    _check(commands.add_parser("check", help="show that every method is lossless here", description=_CHECK))
    _bench(commands.add_parser("bench", help="measure what every method gains", description=_BENCH))
    _doctor(
        commands.add_parser(
            "doctor", help="see what is here and what is missing; measure rounds", description=_DOCTOR
        )
    )
    _serve(
        commands.add_parser("serve", help="answer over HTTP, as OpenAI's interface does", description=_SERVE)
    )
    _trace(
        commands.add_parser(
            "trace", help="show a generation round by round, as a page in the browser", description=_TRACE
        )
    )
    _export(
        commands.add_parser(
            "export", help="write a drafter in the layout of another engine", description=_EXPORT
        )
    )
    _convert(
        commands.add_parser(
            "convert", help="bring a GGUF file or DeLS-Spec's pickles into a folder", description=_CONVERT
        )
    )
    _calibrate(
        commands.add_parser(
            "calibrate", help="fit how a drafter is used to the target's own answers", description=_CALIBRATE
        )
    )
    _train(
        commands.add_parser(
            "train",
            help="train a drafter or a correction head",
            description=_TRAIN,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _table(
        commands.add_parser("models", help="list the models that have a name, and their drafters"),
        _run_models,
    )
    _table(commands.add_parser("methods", help="list the methods of drafting"), _run_methods)
    return root


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are ValueErrors of one line, and whose options cannot be cut short."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, argument_default=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in the form of all our errors."""
        text = message.removeprefix("argument ")
        text = re.sub(r"invalid choice: (.*) \(choose from (.*)\)", r"got \1, expected one of \2", text)
        text = re.sub(
            r"^unrecognized arguments: (.*)", r"arguments: got \1, expected only known options", text
        )
        text = re.sub(r": expected one argument$", ": got nothing, expected a value", text)
        raise ValueError(f"{text}; see {self.prog} --help")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"specrun {version('specrun-cli')} (torch {version('torch')})")
        parser.exit()


def _generate(parser: Parser) -> None:
    parser.set_defaults(run=_run_generate)
    _prompt(parser)
    _models(parser)
    _sampling(parser)
    _drafting(parser)
    _diffusion(parser)
    group = parser.add_argument_group("output")
    add = group.add_argument
    add("--no-stream", action="store_true", help="print the text when it is complete")
    add("--stats", action="store_true", help="print counts and times to standard error")
    add("--json", action="store_true", help="print one JSON object instead of the text")

    group = parser.add_argument_group("many prompts")
    add = group.add_argument
    add("--input", metavar="FILE", help="JSON lines with a key prompt or messages, see below")
    add("--output", metavar="FILE", help="answers as JSON lines, in the order of the input")
    add("--batch-size", metavar="N", type=_whole, help="prompts at a time (default: 8)")


def _serve(parser: Parser) -> None:
    parser.set_defaults(run=_run_serve)
    _models(parser)
    _drafting(parser)
    add = parser.add_argument_group("server").add_argument
    add("--host", help="address to listen on (default: 127.0.0.1, this machine alone)")
    add("--port", metavar="N", type=_whole, help="0 takes any free one (default: 8000)")
    add("--batch-size", metavar="N", type=_whole, help="answers at a time (default: 8)")
    add("--queue", metavar="N", type=_whole, help="answers that may wait; more are refused (default: 64)")
    add(
        "--max-new-tokens",
        metavar="N",
        type=_whole,
        help="of a request that names no limit, as far as the context reaches (default: 512)",
    )


def _export(parser: Parser) -> None:
    parser.set_defaults(run=_run_export)
    add = parser.add_argument
    add("--model", help="the drafter's target: name, folder or owner/name[@revision] (default: tiny)")
    add("--method", help="the method whose drafter and head are written (default: dflash)")
    add("--draft", metavar="MODEL", help="drafter (default: the known one of model and method)")
    add("--layout", choices=("public", "speculators"), help="default: public")
    add("--dtype", help="of the weights: bfloat16, float16, float32, float64 (default: bfloat16)")
    add("--verifier", metavar="NAME", help="how the folder names its target (default: as --model)")
    add("--output", metavar="FOLDER", required=True, help="a folder that is empty or not there yet")
    add("--offline", action="store_true", help="download nothing")


def _convert(parser: Parser) -> None:
    parser.set_defaults(run=_run_convert)
    add = parser.add_argument
    add("source", metavar="FILE", help="a .gguf file, or local_head.pt")
    add("--drafter", metavar="FOLDER", help="of local_head.pt: the DFlash drafter that it goes with")
    add("--dtype", help="of a GGUF's weights: bfloat16, float16, float32 (default: bfloat16)")
    add("--output", metavar="FOLDER", required=True, help="a folder that is empty or not there yet")


def _trace(parser: Parser) -> None:
    parser.set_defaults(run=_run_trace)
    _prompt(parser)
    _models(parser, method="dflash")
    _sampling(parser)
    _drafting(parser)
    add = parser.add_argument_group("output").add_argument
    add("--html", metavar="FILE", help="write a page; a file of that name is replaced")
    add("--json", action="store_true", help="print one JSON object")


def _chat(parser: Parser) -> None:
    parser.set_defaults(run=_run_chat)
    _conversation(parser)
    _models(parser)
    _sampling(parser)
    _drafting(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--stats", action="store_true", help="print counts and times behind every answer")


def _check(parser: Parser) -> None:
    parser.set_defaults(run=_run_check)
    _models(parser, method=None)
    add = parser.add_argument
    add("--methods", metavar="A,B", help="methods to check (default: all with a drafter on this disk)")
    add("--prompts", metavar="FILE", help="JSON lines with a key prompt (default: eight of our own)")
    add("--no-chat-template", action="store_true", help="continue the prompts as they stand")
    add("--max-new-tokens", metavar="N", type=_whole, help="tokens of an answer at most (default: 64)")
    add("--temperature", metavar="T", type=_number, help="of the sampled answers, above 0 (default: 1)")
    add("--seed", metavar="N", type=_whole, help="of the sampled answers (default: 0)")
    add(
        "--draws", metavar="N", type=_whole, help="samples for the test of the law (default: 256; 0 for none)"
    )
    add("--json", action="store_true", help="print one JSON object")


def _bench(parser: Parser) -> None:
    parser.set_defaults(run=_run_bench)
    _models(parser, method=None)
    add = parser.add_argument_group("what is measured").add_argument
    add(
        "--quick",
        action="store_true",
        help="few methods and prompts: under two minutes with the embedded model",
    )
    add("--methods", metavar="A,B", type=_names, help="beside ar (default: all with a drafter)")
    add(
        "--prompts",
        metavar="A,B",
        type=_names,
        help="held-out prompts of the embedded family by domain (math, code, story, stdlib), or files of JSON lines"
        " with a key prompt (default: math,code)",
    )
    add("--count", metavar="N", type=_whole, help="prompts of each at most (default: 8)")
    add("--temperatures", metavar="T,T", type=_numbers, help="default: 0")
    add("--batch-sizes", metavar="N,N", type=_wholes, help="prompts at a time (default: 1)")
    add("--max-new-tokens", metavar="N", type=_whole, help="tokens of an answer at most (default: 96)")
    add("--repeats", metavar="N", type=_whole, help="measured runs of every method (default: 7)")
    add("--seed", metavar="N", type=_whole, help="of sampled answers (default: 0)")
    add("--threads", metavar="N", type=_whole, help="of torch on the CPU (default: its own)")
    add("--output", metavar="FOLDER", help="write bench.json there, and bench.png with the extra plots")
    add = parser.add_argument_group("shapes without weights").add_argument
    add(
        "--random-weights",
        metavar="SHAPE",
        help="time a public shape with random weights: tiny or qwen3-0.6b",
    )
    add("--context", metavar="N", type=_whole, help="tokens of its prompt (default: 256)")
    add(
        "--simulate-acceptance",
        metavar="X",
        type=_number,
        help="tokens per round to assume, as nothing is accepted there; marked as simulated everywhere",
    )
    _drafting(parser)


def _doctor(parser: Parser) -> None:
    parser.set_defaults(run=_run_doctor)
    add = parser.add_argument
    add(
        "--measure",
        action="store_true",
        help="measure rounds of a method by rows verified and length of context, and keep the table on disk",
    )
    _models(parser, method="dflash")
    add("--context", metavar="N", type=_whole, help="tokens of prompt and answer to fit (default: 4096)")
    add("--batch-size", metavar="N", type=_whole, help="requests at a time to fit (default: 1)")
    add("--contexts", metavar="N,N", help="with --measure: lengths to measure at (default: 128,512)")
    add("--json", action="store_true", help="print one JSON object")


def _prompt(parser: Parser) -> None:
    add = parser.add_argument
    add("prompt", metavar="PROMPT", nargs="?", help="the text; - reads standard input")
    add(
        "--prompt-file",
        metavar="FILE",
        help="read the text from a UTF-8 file; one final line break is dropped",
    )
    _conversation(parser)
    add("--no-chat-template", action="store_true", help="continue the text as it stands")


def _conversation(parser: Parser) -> None:
    add = parser.add_argument
    add("--system", metavar="TEXT", help="system turn of the conversation")
    add(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="let a model that can think do so (default: no; public drafters were trained without)",
    )


def _models(parser: Parser, *, method: str | None = "auto, the fastest here") -> None:
    group = parser.add_argument_group("models")
    add = group.add_argument
    add("--model", help="name, folder or owner/name[@revision] (default: tiny; see specrun models)")
    add("--draft", metavar="MODEL", help="drafter, likewise (default: the known one of model and method)")
    if method is not None:
        add("--method", help=f"how to draft: auto, or one of specrun methods (default: {method})")
    add("--device", help="auto, cpu, cuda or cuda:N (default: auto, the first CUDA device if there is one)")
    add(
        "--dtype",
        help="float32, bfloat16, float16, float64 (default: the model's own on CUDA, float32 on the CPU)",
    )
    add(
        "--compile",
        action="store_true",
        help="make rounds one compiled graph each: faster, after up to a minute for the first of every kind",
    )
    add("--offline", action="store_true", help="download nothing")


def _sampling(parser: Parser) -> None:
    group = parser.add_argument_group("sampling")
    add = group.add_argument
    add(
        *("--max-new-tokens", "--max-tokens"),
        metavar="N",
        type=_whole,
        help="new tokens at most, the first included (default: 256)",
    )
    add("--temperature", metavar="T", type=_number, help="0 takes the most probable token (default: 0)")
    add(
        "--top-p",
        metavar="P",
        type=_number,
        help="keep the most probable tokens up to this mass (default: 1)",
    )
    add("--top-k", metavar="N", type=_whole, help="keep this many tokens, 0 for all (default: 0)")
    add(
        "--min-p",
        metavar="P",
        type=_number,
        help="drop tokens below this share of the best one's (default: 0)",
    )
    add("--repetition-penalty", metavar="X", type=_number, help="on prompt and output (default: 1)")
    add("--presence-penalty", metavar="X", type=_number, help="on the output (default: 0)")
    add("--frequency-penalty", metavar="X", type=_number, help="on the output (default: 0)")
    add("--seed", metavar="N", type=_whole, help="the same seed gives the same text (default: 0)")
    add("--stop", metavar="TEXT", action="append", help="end before this text; may be given several times")


def _drafting(parser: Parser) -> None:
    group = parser.add_argument_group("drafting")
    add = group.add_argument
    add(
        "--block-size",
        metavar="N",
        type=_whole,
        help="rows of a drafted block, the anchor included (default: as the drafter was trained)",
    )
    add(
        *("--tree-budget", "--budget"),
        metavar="N",
        type=_whole,
        help="drafted nodes of a tree, the anchor not counted (default: by method)",
    )
    add(
        "--accept",
        choices=("match", "reject"),
        help="acceptance rule; trees know only match (default: match)",
    )
    add("--draft-temperature", metavar="T", type=_number, help="with --accept reject (default: 0.5)")
    add(
        "--policy",
        metavar="NAME[=X]",
        help="how much of a proposal is verified: fixed, threshold, libraspec, dspark, caddtree, measured, or adaflash"
        " with a drafter that has its head (default: all of it)",
    )
    add(
        "--couple",
        metavar="X",
        type=_number,
        help="how far a tree trusts the target's own noise above temperature 0: 0 not at all, 1 fully"
        " (default: as calibrated with the drafter, else 0.5)",
    )


def _diffusion(parser: Parser) -> None:
    group = parser.add_argument_group("block diffusion", "for models that denoise blocks, such as tiny-llada")
    add = group.add_argument
    add("--preset", choices=("quality", "speed", "careful"), help="thresholds by name (default: quality)")
    add("--mask-threshold", metavar="P", type=_number, help="a mask becomes a token surer than this")
    add("--edit-threshold", metavar="P", type=_number, help="a token becomes another one surer than this")
    add("--edit-steps", metavar="N", type=_whole, help="passes over a block without masks (default: 16)")
    add("--reopened", metavar="N", type=_whole, help="last blocks that are edited together (default: 1)")
    add("--refine-steps", metavar="N", type=_whole, help="passes over the whole draft (default: 8)")
    add("--refine-threshold", metavar="P", type=_number, help="as --edit-threshold, there (default: 0.9)")
    add(
        "--refine-ahead", metavar="N", type=_whole, help="later blocks in sight, there (default: all of them)"
    )
    add("--remask", metavar="X", type=_number, help="share of the draft to find again (default: 0)")
    add("--open-tail", action="store_true", help="let refinement change what lies behind the draft's end")


def _calibrate(parser: Parser) -> None:
    parser.set_defaults(run=_run_calibrate)
    add = parser.add_argument
    add("--model", help="name, folder or owner/name[@revision] (default: tiny)")
    add("--method", help="the method whose drafter and head are measured (default: ddtree)")
    add("--draft", metavar="MODEL", help="drafter (default: the known one of model and method)")
    add("--device", help="cpu, cuda or cuda:N (default: cpu)")
    add(
        "--prompts",
        metavar="FILE",
        help="JSON lines with a key prompt (default: prompts of the embedded family)",
    )
    add("--documents", metavar="N", type=_whole, help="answers to draw (default: 96)")
    add("--max-new-tokens", metavar="N", type=_whole, help="tokens of an answer at most (default: 128)")
    add("--temperature", metavar="T", type=_number, help="of the answers, above 0 (default: 1)")
    add("--seed", metavar="N", type=_whole, help="of the answers (default: 0)")
    add("--output", metavar="FOLDER", help="write there (default: beside the drafter's weights)")


def _train(parser: Parser) -> None:
    parser.set_defaults(run=_run_train)
    add = parser.add_argument
    add("recipe", metavar="RECIPE", nargs="?", help="the name of a recipe, or a file that ends in .toml")
    add("--list", action="store_true", help="list the recipes that have a name")
    add("--output", metavar="FOLDER", help="the run's folder (default: runs/RECIPE)")
    add(
        "--data",
        metavar="FOLDER",
        help="shards with the splits train and valid, instead of the recipe's data",
    )
    add("--resume", action="store_true", help="go on with the run in the folder")
    add("--device", help="cpu, cuda or cuda:N (default: cpu)")


def _table(parser: Parser, run: Any) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at most 64 bits")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = None
    # the device computes in single precision
    if value is None or LARGEST < abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of at most {LARGEST:g}")
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _wholes(text: str) -> list[int]:
    return [_whole(part) for part in text.split(",")]


def _numbers(text: str) -> list[float]:
    return [_number(part) for part in text.split(",")]


def _no_command(_: argparse.Namespace) -> NoReturn:
    raise ValueError("command: got none, expected one; specrun --help lists them")


def _run_generate(given: argparse.Namespace) -> None:
    from specrun_cli.generate import run

    run(vars(given))


def _run_doctor(given: argparse.Namespace) -> int:
    from specrun_cli.doctor import run

    return run(vars(given))


def _run_bench(given: argparse.Namespace) -> None:
    from specrun_cli.bench import run

    run(vars(given))


def _run_check(given: argparse.Namespace) -> int:
    from specrun_cli.check import run

    return run(vars(given))


def _run_chat(given: argparse.Namespace) -> None:
    from specrun_cli.chat import run

    run(vars(given))


def _run_serve(given: argparse.Namespace) -> None:
    from specrun_cli.serve import run

    run(vars(given))


def _run_export(given: argparse.Namespace) -> None:
    from specrun_cli.export import run

    run(vars(given))


def _run_convert(given: argparse.Namespace) -> None:
    from specrun_cli.convert import run

    run(vars(given))


def _run_trace(given: argparse.Namespace) -> None:
    from specrun_cli.trace import run

    run(vars(given))


def _run_calibrate(given: argparse.Namespace) -> None:
    from specrun_cli.calibrate import run

    run(vars(given))


def _run_train(given: argparse.Namespace) -> None:
    from specrun_cli.train import run

    run(vars(given))


def _run_models(given: argparse.Namespace) -> None:
    from specrun_cli.models import run

    run(as_json="json" in given)


def _run_methods(given: argparse.Namespace) -> None:
    from specrun_cli.methods import run

    run(as_json="json" in given)
