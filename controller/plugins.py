"""Parts that join by entry points, and may not be there, such as the simulator."""

from importlib.metadata import EntryPoint
from typing import Any


class PluginError(Exception):
    """It cannot be loaded; the text says why, in one line."""


def loaded(plugin: EntryPoint) -> Any:
    """What the entry point names. Raises PluginError, whatever somebody else's module does while it is imported."""
    try:
        return plugin.load()
    except ModuleNotFoundError as error:
        raise PluginError(_what_brings(error.name, plugin) or one_line(error)) from error
    except Exception as error:
        raise PluginError(one_line(error)) from error


def _what_brings(module: str | None, plugin: EntryPoint) -> str:
    """It may need more than the programs do: extras of its distribution, which the entry point names."""
    if module is None or not plugin.extras or plugin.dist is None:
        return ""
    return f"{module} is not installed; it comes with: pip install '{plugin.dist.name}[{','.join(plugin.extras)}]'"


def one_line(error: Exception) -> str:
    """Its kind and text; of the system's errors what they are about."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())
