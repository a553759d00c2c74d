"""A name in, a local folder out: a folder as it is, an embedded model, or a download from the Hugging Face hub.

The one file that knows the hub. Downloads resume where they stopped and show a progress bar.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specmodels.known import KNOWN_MODELS, known_model

_FILES: Final = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.pt"]
_SKIPPED: Final = ["*/*"]  # copies in other formats live in folders
_REPO: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def resolve(
    source: str | Path,
    *,
    revision: str | None = None,
    offline: bool = False,
    embedded: Mapping[str, Path] | None = None,
) -> Path:
    """The folder of a model: `source` is a local folder, a known name, or `owner/name` with `@revision` if wanted.

    `embedded` says where the models are that come with a package.
    """
    if isinstance(source, Path) or Path(source).expanduser().is_dir():
        return _local(Path(source).expanduser())
    if source in KNOWN_MODELS:
        known = known_model(source)
        if not known.embedded:
            return _download(known.repo, revision or known.revision, offline=offline)
        if embedded is None or source not in embedded:
            raise ValueError(
                f"model {source}: not installed, expected the package that holds it; install spectiny"
            )
        return _local(embedded[source])
    if not _REPO.fullmatch(source):
        if source.startswith((".", "/", "~")) or "/" in source:
            return _local(Path(source).expanduser())
        known_model(source)
    repo, _, pinned = source.partition("@")
    if pinned and revision and pinned != revision:
        raise ValueError(f"revision of {repo}: got {pinned} and {revision}, expected one")
    return _download(repo, pinned or revision or "main", offline=offline)


def cached(repo: str, revision: str) -> Path | None:
    """The folder where a download of `owner/name` lies, whole or not; None without one. Looks at this disk alone."""
    # the library's own lookup takes half a second to import; this is the documented layout of its cache
    from huggingface_hub import constants  # noqa: PLC0415 - read late, as its tests and users change it

    kept = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
    reference = kept / "refs" / revision
    commit = reference.read_text(encoding="ascii").strip() if reference.is_file() else revision
    folder = kept / "snapshots" / commit
    return folder if folder.is_dir() else None


@dataclass(frozen=True, slots=True)
class HubState:
    """How downloads are set up here."""

    cache: Path  # the folder where they lie
    offline: bool  # forbidden by the environment
    login: bool  # a token is stored, as gated models need it; the token itself is nobody's business


def hub_state() -> HubState:
    """What the hub's library finds on this machine; asks nobody."""
    from huggingface_hub import constants, get_token  # noqa: PLC0415 - see _download

    return HubState(Path(constants.HF_HUB_CACHE), bool(constants.HF_HUB_OFFLINE), get_token() is not None)


def _local(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(
            f"model folder {folder}: missing, expected a folder with config.json and safetensors files"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(f"model folder {folder}: no config.json in it, expected a folder in a public layout")
    return folder


def _download(repo: str, revision: str, *, offline: bool) -> Path:
    # half a second of imports that local models need not pay for
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415

    what = f"{repo}@{revision}"
    try:
        folder = snapshot_download(
            repo,
            revision=revision,
            local_files_only=offline,
            allow_patterns=_FILES,
            ignore_patterns=_SKIPPED,
        )
    # the order matters: gated is a kind of not found
    except errors.GatedRepoError as error:
        raise ValueError(
            f"{what}: gated; accept its licence at https://huggingface.co/{repo}, then log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"{what}: no such repository, or it is private; check the name, or log in with `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"{what}: no such revision; expected a branch, tag or commit of {repo}") from error
    except errors.HFValidationError as error:
        raise ValueError(f"{what}: not a repository name, expected owner/name") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        if offline or isinstance(error, errors.OfflineModeIsEnabled):
            message = (
                f"{what}: not on this machine while offline; download it once while online, or pass a folder"
            )
        else:
            message = (
                f"{what}: hub not reachable and not on this machine; check the connection, or pass a folder"
            )
        raise ValueError(message) from error
    except (errors.HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{what}: download failed ({reason}); run again to resume it") from error
    return _local(Path(folder))
