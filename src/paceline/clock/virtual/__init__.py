"""Virtual clock: real gradients, modelled time, any number of workers in one process."""
