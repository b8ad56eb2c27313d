"""Our decoding inside other libraries' loops; nothing here is imported unless it is asked for.

`tabes.interop.transformers.generate` is for `model.generate(..., custom_generate=...)`,
`tabes.interop.diffusers.BlockScheduler` for `LLaDA2Pipeline(scheduler=...)`.
"""
