"""Names that packages import late are all there."""

import importlib

import pytest


@pytest.mark.parametrize("package", ["specrun", "specmodels"])
def test_every_exported_name_is_there(package):
    module = importlib.import_module(package)
    # a module would be the sign of a name that its own file shadows
    for name in module.__all__:
        assert type(getattr(module, name)).__name__ != "module", name
    with pytest.raises(AttributeError, match=f"module {package} has no attribute Absent"):
        _ = module.Absent
