"""One list of what is never read by itself: by name, place and first lines, for tools, collections and mentions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from indexing_kit import paths, skipped

from corpus import corpus
from kvchat.chat.question.mentions import outside
from kvchat.chat.tools.files import ReadFile
from kvchat.chat.tools.tool import ToolError
from kvchat.documents.collection import IndexingOptions
from kvchat.documents.kept_out import SECRET, is_secret, is_secret_name, is_secret_path
from kvchat.prompt.context import FILE, ContextBlock

PLACES = """
.config/kvchat/mcp.json .config/kvchat/config.toml .aws/credentials .aws/config .docker/config.json .git/config
project/.git/config project.git/config .git/modules/sub/config .git-credentials .netrc .envrc .env .env.production .env.my
deploy/live.env terraform.tfstate infra/terraform.tfstate.backup infra/prod.auto.tfvars .bash_history .zsh_history
.python_history .local/share/fish/fish_history .ssh/config .ssh/known_hosts .ssh/work .gnupg/trustdb.txt .kube/config
.npmrc .pypirc .my.cnf .pgpass .vault-token .cargo/credentials.toml .cargo/credentials .config/gh/hosts.yml
.config/rclone/rclone.conf .config/gcloud/access_tokens.txt .config/containers/auth.json .m2/settings.xml
.gradle/gradle.properties .gem/credentials .azure/accessTokens.json .password-store/mail.txt .s3cfg .htpasswd
.mozilla/firefox/x.default/prefs.js .config/google-chrome/Default/Preferences .config/chromium/Local State
Library/Application Support/Google/Chrome/Default/Preferences Library/Keychains/list.txt .thunderbird/x/prefs.js
.electrum/wallets/default .bitcoin/bitcoin.conf wallet.dat .ethereum/keystore/UTC--1 .huggingface/token
.cache/huggingface/token .codex/auth.json .claude.json .config/github-copilot/hosts.json .local/share/keyrings/x.txt
vault.kdbx server.pem id_ed25519 tls/site.key client_secret_77.json service-account-prod.json .terraformrc secrets.yaml
credentials.json .vscode/mcp.json claude_desktop_config.json wp-config.php .docker/contexts/meta/x.json
"""
COPIES = """
.env.bak .env~ .env.old .env.orig .env.local.bak id_rsa.old id_rsa.bak ID_RSA .ENV .Netrc .netrc.save .npmrc.1
.pgpass.2024-05-01 .AWS/Credentials .aws/credentials.bak .docker/config.json.old .bash_history.1 .SSH/Config
.git/config.bak terraform.tfstate.1716206000.backup server.pem.bak .env.20240501 .htpasswd.bak .env.dpkg-old #.netrc#
"""
PUBLIC = """
.env.example .env.sample .env.template .env.dist .env.local.example .env.example.bak example.env.md environment.yml env.md
vite-env.d.ts id_rsa.pub .ssh/id_ed25519.pub notes.md config.toml project/config.toml history.md credentials.md secrets.md
docs/aws/credentials.md keys.md src/auth.ts token.py settings.xml package.json .gitconfig .gitignore .github/config.yml
docker/config.json git/config kube/config .config/nvim/init.lua kvchat/README.md library/books.md etc/hosts monkey.txt
cookies.md passwords-explained.md terraform/main.tf variables.tf .npmignore .editorconfig .config/op.md
"""
LINES = {
    "aws": "[default]\naws_access_key_id = AKIA77\naws_secret_access_key = kiln-word-77\n",
    "aws, commented": "# mine\n[work]\nregion = eu\naws_session_token=kiln\n",
    "docker": '{\n\t"auths": {\n\t\t"registry.example": {"auth": "a2lsbg=="}\n\t}\n}\n',
    "netrc": "machine example.org login anna password kiln-word-77\n",
    "netrc in lines": "machine example.org\n  login anna\n  password kiln-word-77\n",
    "npm": "registry=https://r.example/\n//r.example/:_authToken=kiln-word-77\n",
    "git credentials": "https://anna:kiln-word-77@git.example\n",
    "git config": '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://anna:ghp_77@git.example/x.git\n',
    "terraform": '{\n  "version": 4,\n  "terraform_version": "1.9.0",\n  "serial": 3\n}\n',
    "kubernetes": "apiVersion: v1\nclusters: []\nkind: Config\nusers:\n- name: a\n",
    "service account": '{"type": "service_account", "project_id": "x"}',
    "own login": '{\n  "type": "authorized_user",\n  "refresh_token": "kiln"}',
    "firefox": '"url","username","password","httpRealm"\n"https://a.example","anna","kiln"\n',
    "chrome": "name,url,username,password,note\na,https://a.example,anna,kiln,\n",
    "bitwarden": "folder,favorite,type,name,notes,fields,reprompt,login_uri,login_username,login_password,login_totp\n",
    "wallet": '{"address":"77","crypto":{"cipher":"aes-128-ctr","ciphertext":"77"},"version":3}',
    "openvpn": "client\n<tls-auth>\n-----BEGIN OpenVPN Static key V1-----\n77\n",
    "age": "# created: 2024\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQ\n",
    "tool servers": '{"mcpServers": {"a": {"url": "x", "headers": {"Authorization": "Bearer kiln"}}}}',
}
OPEN_LINES = (
    "A key begins with -----BEGIN PRIVATE KEY----- and ends.\n",
    "Set aws_access_key_id in ~/.aws/credentials.\n",
    "# Notes\n\nMachine learning with a login page and a password field.\n",
    "See https://example.org for a list.\n",
    "id,name,amount\n1,rake,3\n",
    "username,city\nanna,Bergen\n",
    '{"type": "module", "name": "x"}',
    '{"version": 2, "name": "terraform notes"}',
    "apiVersion: v1\nkind: ConfigMap\ndata: {}\n",
    "[core]\n\tbare = false\n",
    '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}',
)


def listed(text: str) -> list[str]:
    """The paths of a table; `Application Support` and `Local State` are one name each."""
    text = text.replace("Application Support", "Application\0Support").replace("Local State", "Local\0State")
    return [path.replace("\0", " ") for path in text.split()]


def put(folder: Path, path: str, text: str = "token = kiln-word-77\n") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def reads(folder: Path, path: str) -> bool:
    """Whether the tool gives a file to the model."""
    tool = ReadFile(folder)
    try:
        return "kiln" in tool._read({"path": path}).text
    except ToolError as error:
        assert SECRET in str(error)
        return False


def needs_yes(file: Path, text: str = "x") -> bool:
    """Whether a file that is mentioned inside of its folder needs a yes of its own."""
    found = outside([ContextBlock(FILE, file.name, text, f"{file}#0123456789abcdef")], [str(file.parent)], [])
    return any(one.is_secret for one in found)


@pytest.mark.parametrize("path", listed(PLACES) + listed(COPIES))
def test_no_door_gives_it_by_itself(tmp_path: Path, path: str) -> None:
    file = put(tmp_path, path)
    assert not reads(tmp_path, path)
    assert paths(tmp_path, IndexingOptions(hidden=True)) == []
    assert needs_yes(file)


@pytest.mark.parametrize("path", listed(PUBLIC))
def test_what_is_there_to_be_read_is(tmp_path: Path, path: str) -> None:
    file = put(tmp_path, path)
    assert reads(tmp_path, path) and not needs_yes(file)


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_its_first_lines_tell_it_under_another_name(tmp_path: Path, text: str) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        assert is_secret(text.encode(encoding)) and is_secret(text.replace("\n", "\r\n").encode(encoding))
    file = put(tmp_path, "notes.txt", text)
    os.link(file, tmp_path / "hard.txt")
    assert not reads(tmp_path, "notes.txt") and not reads(tmp_path, "hard.txt")
    assert needs_yes(file, text)


@corpus("text", OPEN_LINES)
def test_what_speaks_of_passwords_is_read(text: str) -> None:
    assert not is_secret(text.encode())


def test_a_link_opens_nothing(tmp_path: Path) -> None:
    put(tmp_path, ".aws/credentials")
    put(tmp_path, "plain.txt")
    (tmp_path / "notes.txt").symlink_to(".aws/credentials")
    (tmp_path / "cloud").symlink_to(".aws")
    (tmp_path / ".env").symlink_to("plain.txt")
    for path in ("notes.txt", "cloud/credentials", "./cloud/../.aws/credentials", ".env"):
        assert not reads(tmp_path, path)
    assert needs_yes(tmp_path / "notes.txt") and needs_yes(tmp_path / ".env") and not needs_yes(tmp_path / "plain.txt")


def test_a_folder_of_keys_is_not_listed_and_said_once(tmp_path: Path) -> None:
    for name in ("mail.txt", "bank.txt", "deep/x.txt"):
        put(tmp_path, f".password-store/{name}")
    with pytest.raises(ToolError, match=SECRET):
        ReadFile(tmp_path)._read({"path": ".password-store"})
    assert skipped(tmp_path, IndexingOptions(hidden=True)) == {".password-store/": SECRET}


def test_a_working_folder_that_is_one_gives_nothing(tmp_path: Path) -> None:
    put(tmp_path, ".ssh/work")
    assert not reads(tmp_path / ".ssh", "work")


def test_kvchats_own_files_are_kept_out_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KVCHAT_DATA_DIR", str(tmp_path / "chats"))
    monkeypatch.setenv("KVCHAT_CONFIG", str(tmp_path / "settings" / "mine.toml"))
    for path in ("chats/memory/a.md", "chats/notes.txt", "settings/mine.toml", "settings/mcp.json"):
        put(tmp_path, path)
        assert not reads(tmp_path, path)
    put(tmp_path, "settings/other.md")
    put(tmp_path, "chatsnotes/a.md")
    assert reads(tmp_path, "settings/other.md") and reads(tmp_path, "chatsnotes/a.md")


def test_a_data_folder_that_holds_the_home_folder_keeps_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KVCHAT_DATA_DIR", str(tmp_path))
    put(tmp_path, "home/a.md")
    assert reads(tmp_path / "home", "a.md")


def test_other_forms_of_a_name_are_the_same_name() -> None:
    assert is_secret_name("CREDENTIALS.JSON") and is_secret_name("Copy of .env") and is_secret_name(".env copy 2")
    assert is_secret_name(".env (1)") and is_secret_name(".env.sync-conflict-20240501-101010-ABCDEFG")
    assert is_secret_path("/x/.Config/KVChat/MCP.json") and not is_secret_path("/x/aws/readme.md")
