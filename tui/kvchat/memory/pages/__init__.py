"""The Markdown files: pages, their entries, and the folder they are in. They belong to the user, who may edit them with
any editor."""
