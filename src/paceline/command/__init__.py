"""Commands of the command line; the module `<name>_command.py` is `paceline <name>`.

Its docstring is the text of `paceline <name> --help`. `add_arguments(parser)` adds the options of
the command. `run(options, root)` carries it out in the root of the project, and returns the exit
code.
"""
