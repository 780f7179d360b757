"""The public names of the package, and where each is: `gpusim/__init__.py` imports one when it is first asked for."""

PUBLIC = {
    "Experiment": "gpusim.api.grids:Experiment",
    "Result": "gpusim.api.result:Result",
    "advise": "gpusim.api.advising:advise",
    "check": "gpusim.api.checking:check",
    "fit": "gpusim.api.questions:fit",
    "kernel_times": "gpusim.api.questions:kernel_times",
    "load_machine": "gpusim.api.inputs:load_machine",
    "load_results": "gpusim.api.grids:load_results",
    "load_trace": "gpusim.api.inputs:load_trace",
    "machines": "gpusim.api.machines:machines",
    "monitor": "gpusim.api.monitoring:monitor",
    "oom": "gpusim.api.questions:oom",
    "policy": "gpusim.policies.decorators",
    "record": "gpusim.programs.record",
    "run": "gpusim.api.grids:run",
    "serve": "gpusim.api.serving:serve",
    "simulate": "gpusim.api.runs:simulate",
    "transform": "gpusim.programs.transforms:apply",
    "transforms": "gpusim.programs.transforms",
    "tune": "gpusim.api.tuning:tune",
}
