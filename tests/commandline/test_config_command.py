"""`kvchat config`: where the settings are, what is in force, what is wrong."""

from toyserver import ToyServer


async def test_every_mistake_is_told_with_its_line(run, own_folders):
    file = own_folders / "config" / "config.toml"
    (file.parent / "themes").mkdir(parents=True)
    file.write_text('theme = "kvchat-nigth"\n[keys]\nnew = "ctrl+h"\n[engine]\nslots = "two"\n')
    (file.parent / "themes" / "mine.toml").write_text("name = \n")
    done = await run("config", "check")
    assert done.status == 1
    lines = done.out.splitlines()
    assert any(line.startswith("config.toml:1:") and "kvchat-night" in line for line in lines)
    assert any(line.startswith("config.toml:3:") and "backspace" in line for line in lines)
    assert any(line.startswith("config.toml:5:") and "engine.slots" in line for line in lines)
    assert any(line.startswith("mine.toml:1:") for line in lines)


async def test_without_mistakes_it_says_so(run, own_folders):
    done = await run("config", "check")
    assert (done.status, "defaults" in done.out) == (0, True)
    assert (await run("config", "path")).out.strip() == str(own_folders / "config" / "config.toml")
    assert "time_stamp_minutes" in (await run("config", "show", "--theme", "kvchat-day")).out


async def test_a_model_that_the_server_does_not_have_is_refused_before_anything_is_sent(run):
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "--model", "nosuch", "ask", "hello")
        assert server.posts == 0
    assert done.status == 1
    assert "has no model nosuch" in done.err
    assert "toy" in done.err
