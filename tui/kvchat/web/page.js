// What is typed goes to the terminal from the beginning.
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());

// A tab that is loaded anew comes back to its kvchat.
document.addEventListener("DOMContentLoaded", () => {
  const tab = (sessionStorage.tab ??= Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16)).join(""));
  document.getElementById("terminal").dataset.sessionWebsocketUrl += `/${tab}`;
});
