"""A server that gives out tokens for what is rightly signed or known, and another that takes no other tokens.

Tokens for a service account (a signed assertion), for a refresh token, and for an installation of a GitHub App. It
counts how many it gave out, and tells at /count."""

import asyncio
import json
import secrets
import time
import urllib.parse

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ACCOUNT = "robot@project.iam.gserviceaccount.com"


class Tokens:
    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.refresh = {client: "1//" + secrets.token_urlsafe(40) for client in ("client", "short")}
        self.secret = "GOCSPX-" + secrets.token_urlsafe(20)
        self.given, self.count = {}, {}

    def files(self):
        """As their providers hand them out."""
        of = lambda form: self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
        return {
            "jwt": {"type": "service_account", "client_email": ACCOUNT, "private_key_id": secrets.token_hex(20),
                    "private_key": of(serialization.PrivateFormat.PKCS8), "token_uri": "https://oauth2.googleapis.com/token"},
            **{name: {"client_id": client, "client_secret": self.secret, "refresh_token": self.refresh[client],
                      "token_uri": "https://auth.corp.example/token"} for name, client in (("oauth", "client"), ("short", "short"))},
            "github-app": {"app_id": 12, "installation_id": 34,
                           "private_key": of(serialization.PrivateFormat.TraditionalOpenSSL)},
        }

    def give(self, kind, lives=3600):
        self.count[kind] = self.count.get(kind, 0) + 1
        token = {"jwt": "ya29.", "github-app": "ghs_"}.get(kind, "token-") + secrets.token_urlsafe(40)
        self.given[token] = (kind, time.time() + lives)
        return token

    def answer(self, host, method, target, fields, body):
        if target == "/count":
            return 200, self.count
        if (host, target) == ("oauth2.googleapis.com", "/token"):
            form = dict(urllib.parse.parse_qsl(body.decode()))
            try:
                told = jwt.decode(form["assertion"], self.key.public_key(), ["RS256"], audience="https://oauth2.googleapis.com/token")
            except (jwt.PyJWTError, KeyError) as error:
                return 400, {"error": "invalid_grant", "error_description": str(error)}
            if told["iss"] != ACCOUNT or "cloud-platform" not in told["scope"]:
                return 400, {"error": "invalid_scope"}
            return 200, {"access_token": self.give("jwt"), "expires_in": 3600, "token_type": "Bearer"}
        if (host, target) == ("auth.corp.example", "/token"):
            form = dict(urllib.parse.parse_qsl(body.decode()))
            client = form.get("client_id")
            if (form.get("refresh_token"), form.get("client_secret")) != (self.refresh.get(client), self.secret):
                return 400, {"error": "invalid_grant"}
            # Each refresh token is good once; for one client the token is soon over.
            self.refresh[client] = "1//" + secrets.token_urlsafe(40)
            lives = 30 if client == "short" else 3600
            return 200, {"access_token": self.give(client, lives), "expires_in": lives, "refresh_token": self.refresh[client]}
        if (host, target) == ("api.github.com", "/app/installations/34/access_tokens"):
            try:
                told = jwt.decode(fields["authorization"].removeprefix("Bearer "), self.key.public_key(), ["RS256"], options={"verify_iss": False, "verify_sub": False})
            except (jwt.PyJWTError, KeyError) as error:
                return 401, {"message": str(error)}
            return (201, {"token": self.give("github-app"), "expires_at": "2099-01-01T00:00:00Z"}) if told["iss"] == "12" else (401, {"message": "app"})
        kind, until = self.given.get(fields.get("authorization", "").removeprefix("Bearer "), ("", 0))
        return (200, {"for": kind}) if until > time.time() else (401, {"error": "no token"})


async def serve(context, tokens):
    async def answer(reader, writer):
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ")
                fields = {}
                while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")) != "":
                    name, _, value = line.partition(":")
                    fields[name.lower()] = value.strip()
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                status, told = tokens.answer(fields["host"], method, target, fields, body)
                text = json.dumps(told).encode()
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, limit=1 << 22)
    return server.sockets[0].getsockname()[1]
