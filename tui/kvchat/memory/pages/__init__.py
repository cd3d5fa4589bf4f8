"""The Markdown files: pages, their entries, and the folder they are in. The person's own, as any editor has them."""
