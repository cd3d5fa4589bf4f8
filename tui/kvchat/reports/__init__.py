"""What is shown of the cache: values that chat makes, and that the screen and the command line draw. Pure: no I/O."""
