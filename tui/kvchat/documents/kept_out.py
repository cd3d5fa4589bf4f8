"""What is not read by itself although it can be: keys and passwords, and what kvchat wrote itself.

One list for tools, collections and mentions: by name, by place, and by what a file begins with. Tools and collections
pass such a file over; one that the user names by hand goes with a yes of its own. What kvchat wrote would come back to
the model as a source, its own guesses among it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from kvchat import paths

SECRET = "may hold keys or passwords"
CONVERSATION = "is a conversation that kvchat wrote"
MEMORY_PAGE = "is a page of kvchat's memory"


def _any(words: str) -> str:
    """An expression for one of these words, in which * is any run of characters within a name."""
    return "|".join(re.escape(word).replace(r"\*", "[^/]*") for word in words.split())


_SETTINGS = r"\.(?:json|toml|ya?ml|ini|cfg|conf|properties|xml|env|csv|txt)"
_NAMES = re.compile(
    # variables of programs, but for the samples of them that are there to be read
    r"\.env(?!.*[._-](?:example|sample|template|tmpl|tpl|dist|defaults?|schema|md|rst|d\.ts)(?:[._-]|$))(?:[._-].*)?"
    r"|\.envrc(?:\..*)?|.*\.env(?:\.(?:local|prod|production|dev|development|test|staging|ci))*"
    rf"|id_[a-z0-9_]+|\.?(?:credentials|secrets)(?:{_SETTINGS})?"
    r"|client_?secret[^/]*\.json|service[-_]account[^/]*\.json|"
    + _any(
        # keys
        "*.pem *.key *.ppk *.p8 *.p12 *.pfx *.jks *.keystore *.kdb *.kdbx *.psafe3 *.agilekeychain *.keychain "
        "*.keychain-db *.kubeconfig kubeconfig ssh_host_*_key .vault-token .vault_pass* "
        # programs that log in by themselves
        ".netrc _netrc .pgpass _pgpass pgpass.conf .npmrc _npmrc .yarnrc .yarnrc.yml .pypirc _pypirc .git-credentials "
        "_git-credentials .htpasswd _htpasswd .htdigest .my.cnf .mylogin.cnf .dockercfg .s3cfg .boto .msmtprc "
        ".fetchmailrc .mbsyncrc .offlineimaprc .authinfo .curlrc .ftpconfig .rhosts .terraformrc terraform.rc "
        ".databrickscfg .sentryclirc .hgrc .claude.json rclone.conf filezilla.xml sitemanager.xml wp-config.php "
        "oauth_creds.json application_default_credentials.json credentials.tfrc.json kaggle.json auth.json mcp.json "
        ".mcp.json mcp_config.json claude_desktop_config.json .xauthority .iceauthority "
        # what keeps what they were given
        "*.tfstate *.tfvars *.tfvars.json "
        # what was typed
        ".bash_history .zsh_history .sh_history .ash_history .ksh_history .history .histfile fish_history "
        ".python_history .node_repl_history .psql_history .mysql_history .mariadb_history .sqlite_history "
        ".rediscli_history .irb_history .pry_history .php_history .lua_history .scala_history .viminfo .dbshell "
        "consolehost_history.txt "
        # browsers and wallets
        "key3.db key4.db logins.json logins-backup.json cookies.sqlite cookies.txt wallet.dat *.wallet"
    )
)
_FOLDERS = (
    _any(
        ".ssh .gnupg .aws .azure .kube .oci .chef .databricks .password-store .putty .pki .bitcoin .litecoin .electrum "
        ".monero .ethereum/keystore .mozilla .thunderbird .librewolf .subversion/auth .svn/auth .docker/contexts "
        ".local/share/keyrings .local/share/kwalletd .local/share/remmina config/google-chrome config/chromium "
        "config/bravesoftware config/microsoft-edge library/keychains library/cookies etc/ssl/private etc/sudoers.d"
    )
    + r"|\.config/(?:"
    + _any(
        "1password age bitwarden bravesoftware chromium configstore doctl filezilla gcloud gh github-copilot glab-cli "
        "google-chrome* hcloud heroku hub librewolf microsoft-edge* op opera rclone remmina solana sops vivaldi "
        "wireguard"
    )
    + ")|(?:library/application support|appdata/(?:local|roaming))/(?:google/chrome|chromium|mozilla|firefox"
    "|bravesoftware|microsoft/edge|microsoft edge|microsoft/credentials)"
)
_FILES = _any(
    ".docker/config.json containers/auth.json .cargo/credentials.toml .gradle/gradle.properties .m2/settings.xml "
    ".m2/settings-security.xml .config/pip/pip.conf .pip/pip.conf .fly/config.yml .netlify/config.json "
    "huggingface/token .huggingface/token huggingface/stored_tokens io.datasette.llm/keys.json .codex/config.toml "
    ".config/aichat/config.yaml .continue/config.json .continue/config.yaml .ngrok2/ngrok.yml ngrok/ngrok.yml "
    "config/master.key proc/*/environ etc/shadow etc/shadow- etc/gshadow etc/wireguard/* .hg/hgrc kvchat/config.toml"
)
_REPOSITORY = r"[^/]*\.git/(?:.*/)?(?:config(?:\.worktree)?|fetch_head)"
_PLACES = re.compile(rf"(?:.*/)?(?:(?:{_FOLDERS})(?:/.*)?|(?:{_FILES})|{_REPOSITORY})", re.DOTALL)
_MAY_BE_PLACE = re.compile(
    r"/\.|\.git/|(?:etc|proc|appdata|config|containers|huggingface|io\.datasette\.llm|keychains|cookies|kvchat|ngrok)/"
    r"|/library/"
)
"""What each of the places holds: most paths need no closer look."""
_COPY = re.compile(
    r"(?:~+|[._-](?:bak|backup|bkp|old|orig|save|saved|copy|tmp|disabled|rpmsave|rpmnew|dpkg-(?:old|dist|new)"
    r"|\d{1,14}|\d{4}-\d\d-\d\d)| ?\(\d+\)| copy(?: \d+)?| \(copy\)|#)$"
)
"""How the name ends of what somebody or something kept of a file."""
_LARGEST_KEY = 1_000_000
_FIRST = 4096
"""Bytes that show what a file of passwords is."""
_KEY = re.compile(
    rb"^[ \t>#*]*-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}[ \t\r]*$"
    rb"|^-----BEGIN OpenVPN Static key V1-----[ \t\r]*$|^AGE-SECRET-KEY-1[0-9A-Z]{20,}[ \t\r]*$"
    rb"|\A\s*PuTTY-User-Key-File-",
    re.MULTILINE,
)
"""The line that a private key begins with, alone on its line: what explains keys quotes it inside a sentence."""
_PASSWORDS = re.compile(
    rb"\s*\{\s*\"(?:type\":\s*\"(?:service_account|authorized_user)\"|auths\":\s*\{|version\":\s*\d+,\s*\"terraform_)"
    rb"|\s*(?:[#;][^\n]*\n\s*)*\[[^\]\n]{1,80}\]\s*(?:[^\n]*\n){0,5}?\s*aws_(?:access_key|secret_access|session_token)"
    rb"|\s*(?:#[^\n]*\n\s*)*machine\s+\S+\s+login\s+\S+\s+(?:account\s+\S+\s+)?password\s"
    rb"|(?:[^\n]*\n){0,20}?\s*//[^\s/]+/\S*:_(?:authToken|auth|password)\s*="
    rb"|\s*https?://[^\s:/@]+:[^\s/@]+@\S+\s*(?:\n|\Z)"
    rb"|\s*apiVersion: v1\s(?:[^\n]*\n){0,60}?kind: Config\s"
    rb"|(?=[^\n]*\b(?:login_)?user_?(?:name)?\b)[^\n{}]*,\s*\"?(?:login_)?password\b[^\n]*(?:\n|\Z)"
    rb"|\s*\[core\]\s*\n(?:[^\n]*\n){0,40}?\s*url\s*=\s*https?://[^\s:/@]+:[^\s/@]+@"
    rb"|\s*\{(?s:.){0,300}?\"crypto\":\s*\{(?s:.){0,300}?\"ciphertext\":"
    rb"|\s*\{\s*\"mcpServers\":(?s:.){0,4000}?\"(?:Authorization|[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD))\"\s*:",
    re.IGNORECASE,
)
"""How files begin that programs keep passwords in, whatever they are called: keys of clouds and registries, the state
of Terraform, exports of password managers, wallets, servers of tools."""
_WRITTEN = re.compile(
    rb"---\r?\n(?:[^\n]*\n){0,9}?(?:exporter: \"kvchat\"|# kvchat [0-9a-f]{32} )|<!-- exporter: kvchat -->"
    rb"|\{\s*\"format\":\s*\"kvchat-conversations\""
    rb"|\{\"messages\": ?\[\{\"role\": ?\"(?:system|user)\", ?\"content\":"
    rb"|<!DOCTYPE html>(?s:.){0,300}?<meta name=\"generator\" content=\"kvchat\">"
)
"""How the mirror and the exports of all formats begin."""
_MEMORY = re.compile(rb"<!-- [mh][0-9a-z]{8} (?:[a-z]+:[^\s<>]* )*by:[^\s<>]* (?:[a-z]+:[^\s<>]* )*-->")


def is_secret_name(name: str) -> bool:
    """Whether a file of this name, or a copy of one, holds keys or passwords as a rule: `id_rsa`, `prod.env`,
    `.netrc.bak`."""
    name = unicodedata.normalize("NFC", name).casefold().removeprefix("copy of ").removeprefix("#")
    while _NAMES.fullmatch(name) is None:
        shorter = _COPY.sub("", name)
        if shorter == name:
            original = paths.original_of(name)
            return bool(original) and _NAMES.fullmatch(original) is not None
        name = shorter
    return True


def is_secret_path(path: str) -> bool:
    """Whether a file of this name or at this place holds keys or passwords as a rule: also `.aws/config`,
    `.git/config`, the profile of a browser, and kvchat's own settings and data. `path`: absolute, without links."""
    if is_secret_name(path.rpartition("/")[2]):
        return True
    place = unicodedata.normalize("NFC", path).casefold()
    if _MAY_BE_PLACE.search(place) and any(map(_PLACES.fullmatch, {place, _COPY.sub("", place)})):
        return not place.endswith(".pub")
    files, folders = _own(os.environ.get(paths.DATA_VARIABLE, ""), os.environ.get(paths.CONFIG_VARIABLE, ""))
    return path in files or f"{path}{os.sep}".startswith(folders)


@lru_cache(maxsize=8)
def _own(data: str, config: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The files of kvchat's own, and its folders with `/` at their ends, by what the environment says; a folder that
    the home folder is in is not one for this alone."""
    try:
        found = paths.find(data, config)
        home = Path(os.path.realpath(Path.home()))
    except (paths.PathError, RuntimeError):
        return frozenset(), ()
    folders = [Path(os.path.realpath(one)) for one in (found.data, found.cache)]
    files = frozenset(os.path.realpath(one) for one in (found.config, found.mcp_servers))
    return files, tuple(f"{one}{os.sep}" for one in folders if not home.is_relative_to(one))


def is_secret(data: bytes) -> bool:
    """Whether a file contains a private key, or begins as a file of passwords does."""
    text = data[:_LARGEST_KEY].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    return _KEY.search(text) is not None or _PASSWORDS.match(text[:_FIRST]) is not None


def looks_secret(path: str, text: str) -> bool:
    """Whether a file at this place with this text needs a yes before it is sent."""
    return is_secret_path(path) or is_secret(text.encode(errors="replace"))


def why(data: bytes) -> str:
    """Why a file with these bytes is not indexed, as it follows its name; empty: nothing is against it."""
    if is_secret(data):
        return SECRET
    if _WRITTEN.match(data.removeprefix(b"\xef\xbb\xbf")):
        return CONVERSATION
    return MEMORY_PAGE if _MEMORY.search(data) else ""
