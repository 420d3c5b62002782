"""``blocklayout serve``: models behind the Open Inference Protocol, over HTTP and gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.errors import InputError

if TYPE_CHECKING:
    import argparse

    from blocklayout.http.settings import Settings

_LISTS = ("models", "name")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options: one for each setting."""
    settings = _settings()
    parser.epilog = (
        "Settings may also stand in the TOML file of --config, as max_waiting = 8, and in environment variables, as "
        "BLOCKLAYOUT_SERVE_MAX_WAITING=8; options precede these."
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    for name, field in settings.model_fields.items():
        default = "" if name in _LISTS or field.default is None else f" (default: {field.default})"
        text = f"{field.description}{default}"
        if name == "models":
            parser.add_argument(name, nargs="*", metavar="MODEL", help=text)
        else:
            action = "append" if name in _LISTS else "store"
            parser.add_argument(f"--{name.replace('_', '-')}", action=action, metavar="VALUE", help=text)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    settings = _settings()
    given = {name: getattr(args, name) for name in settings.model_fields}
    read = settings.read(args.config, **{name: value for name, value in given.items() if value not in (None, [])})

    from blocklayout.http.running import serve

    serve(read)


def _settings() -> type[Settings]:
    try:
        from blocklayout.http.settings import Settings
    except ImportError as error:
        raise InputError(f"serve needs more packages: pip install 'blocklayout[serve]' ({error})") from None
    return Settings
