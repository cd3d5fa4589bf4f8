// What is typed goes to the terminal from the beginning.
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
