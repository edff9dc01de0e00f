"""The hub of a test: its users, a password, a server for each, a proxy from npm."""

import json
import os
import sys

told = json.loads(os.environ["HUB_OF_A_TEST"])
mine = {name: value for name, value in os.environ.items() if name != "HUB_OF_A_TEST"}

c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.JupyterHub.bind_url = told["url"]
c.JupyterHub.ssl_key, c.JupyterHub.ssl_cert = told["certificate"]
c.JupyterHub.hub_port = told["hub_port"]
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.cookie_secret_file = "cookie_secret"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{told['proxy_port']}"
c.ConfigurableHTTPProxy.command = told["proxy"]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = told["token"]
c.Authenticator.allowed_users = set(told["users"])
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = told["homes"] + "/{username}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = told["arguments"]
c.Spawner.default_url = "/lab"
c.Spawner.environment = mine
c.Spawner.http_timeout = c.Spawner.start_timeout = 120


def contain(spawner):
    """Start a user's server in a container, which ends with all that is in it."""
    if spawner.user.name in told["contained"]:
        # Processes and a host name of its own, which is another one each time.
        name = "hostname $(cut -c-8 /proc/sys/kernel/random/uuid)"
        alone = ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child"]
        spawner.cmd = [*alone, "sh", "-c", f'{name}; exec "$@"', "sh", *spawner.cmd]
        spawner.interrupt_timeout = spawner.term_timeout = 0


c.Spawner.pre_spawn_hook = contain
# A service with this token stands for whoever asks beside a page.
c.JupyterHub.services = [{"name": "tests", "api_token": told["token"]}]
c.JupyterHub.load_roles = [
    {
        "name": "tests",
        "services": ["tests"],
        "scopes": ["admin:users", "admin:servers", "access:servers", "tokens"],
    }
]
