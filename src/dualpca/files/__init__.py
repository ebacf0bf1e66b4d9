"""A model to a file and back, checkpoints, ONNX.

Read `container` (arrays and a text in one file), `fields` (what annotations allow; models as JSON),
`metadata` (what may stand beside a model), then `checkpoints` (of long fits) and `onnx_export`.

`estimators.saving` uses all of them: it takes estimators apart, and puts them together. Models use
none: their annotations say what a file may hold. Others use `Checkpoint`, `CheckpointWatch` and
`resuming` (fits that resume), `sizes_of` and `is_record` (of fields), `escaped` and `visible`
(text for people), `is_model_file`, and `metadata`.
"""
