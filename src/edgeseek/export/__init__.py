"""Models as files of other programs, from a checkpoint or a package.

Knows nothing of running a model. Import the format's own module: `edgeseek.export.gguf`.
"""
