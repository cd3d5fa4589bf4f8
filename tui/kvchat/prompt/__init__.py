"""The prompt core: messages, wire bytes, digests, branches, context blocks, assembly. Pure: no I/O."""
