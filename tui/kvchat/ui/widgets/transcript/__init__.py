"""The messages of the branch in use, in one widget that draws its rows itself."""
