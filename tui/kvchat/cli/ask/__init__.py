"""`kvchat ask`: one question on the command line, its answer streamed to standard output.

Only the words of the command line mention documents; what was piped in goes as an attachment in front. They
may come from a script that put another's text into them, so a file from outside of the working folder and the
collections goes only if a user at the terminal says yes; what a script means to send from elsewhere it pipes in.
"""

from kvchat.cli.ask.arguments import add_arguments as add_arguments
from kvchat.cli.ask.command import run as run
