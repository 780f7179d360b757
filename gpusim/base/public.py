"""The public names of the package, and where each is: `gpusim/__init__.py` imports one when it is first asked for."""

PUBLIC = {
    "policy": "gpusim.policies.decorators",
    "record": "gpusim.programs.record",
    "transform": "gpusim.programs.transforms:apply",
    "transforms": "gpusim.programs.transforms",
}
