"""The hub of a test: two users, a password, a server for each, a proxy from npm."""

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
# A service with this token stands for whoever asks beside a page.
c.JupyterHub.services = [{"name": "tests", "api_token": told["token"]}]
c.JupyterHub.load_roles = [
    {
        "name": "tests",
        "services": ["tests"],
        "scopes": ["admin:users", "admin:servers", "access:servers", "tokens"],
    }
]
