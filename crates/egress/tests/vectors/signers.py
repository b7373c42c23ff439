"""Random requests, each signed with two keys by signers that we did not write: botocore and the C library awscrt.

Run as `signers.py SEED COUNT INSIDE_ID INSIDE_SECRET REAL_ID REAL_SECRET`; prints a line of JSON for each request."""

import datetime
import hashlib
import json
import random
import re
import sys
import urllib.parse

import awscrt.auth as crt
import awscrt.http
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

seed, count = int(sys.argv[1]), int(sys.argv[2])
KEYS = [(sys.argv[3], sys.argv[4]), (sys.argv[5], sys.argv[6])]
chance = random.Random(seed)
ALPHABET = "abcXYZ019-._~ +%&=;:@!$'()*,/?#[]\"<>{}|^`üß漢"


def word(alphabet=ALPHABET, least=0, most=10):
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(least, most)))


def random_request(service):
    segments = [word(ALPHABET.replace("/", "")) for _ in range(chance.randint(0, 4))]
    if service == "s3" and chance.random() < 0.2:
        segments += ["", "..", "x"]
    path = "/" + "/".join(urllib.parse.quote(segment, safe="~") for segment in segments)
    pairs = [(word(least=1), word()) for _ in range(chance.randint(0, 3))]
    query = "&".join(f"{urllib.parse.quote(n, safe='~')}={urllib.parse.quote(v, safe='~')}" for n, v in pairs)
    fields = {f"x-amz-meta-{n}": word("ab  1", 1).strip() or "x" for n in chance.sample("abcdef", chance.randint(0, 3))}
    body = word("abc{}\":1", 0, 40)
    if body:
        fields["content-type"] = "application/json"
    method = chance.choice(["PUT", "POST"] if body else ["GET", "DELETE", "HEAD"])
    return method, path, query, fields, body


def text(method, target, fields, body):
    lines = "".join(f"{name}:{value}\n" for name, value in fields)
    return f"{method} {target} HTTP/1.1\n{lines}\n{body}"


def by_botocore(service, region, host, request, presigned, keys):
    method, path, query, fields, body = request
    url = f"https://{host}{path}" + (f"?{query}" if query else "")
    made = AWSRequest(method=method, url=url, headers={"host": host, **fields}, data=body.encode())
    made.context["payload_signing_enabled"] = True
    of = {(True, True): S3SigV4QueryAuth, (True, False): SigV4QueryAuth, (False, True): S3SigV4Auth, (False, False): SigV4Auth}
    signer = of[presigned, service == "s3"](Credentials(*keys), service, region, **({"expires": 600} if presigned else {}))
    signer.add_auth(made)
    parts = urllib.parse.urlsplit(made.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return text(method, target, made.headers.items(), body)


def by_awscrt(service, region, host, request, presigned, keys, now, v4a):
    method, path, query, fields, body = request
    headers = awscrt.http.HttpHeaders([("host", host), *fields.items()])
    target = path + (f"?{query}" if query else "")
    made = awscrt.http.HttpRequest(method, target, headers)
    digest = hashlib.sha256(body.encode()).hexdigest()
    algorithm = crt.AwsSigningAlgorithm.V4_ASYMMETRIC if v4a else crt.AwsSigningAlgorithm.V4
    kind = crt.AwsSignatureType.HTTP_REQUEST_QUERY_PARAMS if presigned else crt.AwsSignatureType.HTTP_REQUEST_HEADERS
    s3 = service == "s3"
    config = crt.AwsSigningConfig(
        algorithm=algorithm, signature_type=kind, region=region, service=service, date=now,
        credentials_provider=crt.AwsCredentialsProvider.new_static(*keys),
        use_double_uri_encode=not s3, should_normalize_uri_path=not s3,
        signed_body_value="UNSIGNED-PAYLOAD" if presigned and s3 else digest,
        signed_body_header_type=crt.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256 if s3 and not presigned else crt.AwsSignedBodyHeaderType.NONE,
        expiration_in_seconds=600 if presigned else None,
    )
    crt.aws_sign_request(made, config).result(30)
    return text(method, made.path, list(made.headers), body)


for _ in range(count):
    service = chance.choice(["s3", "s3", "dynamodb", "execute-api", "bedrock"])
    region = chance.choice(["eu-west-1", "us-east-1"])
    host = f"{word('abc', 3, 8)}.{service}.{region}.amazonaws.com"
    request, presigned = random_request(service), chance.random() < 0.4
    if presigned:
        request = ("GET", *request[1:3], {n: v for n, v in request[3].items() if n != "content-type"}, "")
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    for signer in ("botocore", "awscrt", "awscrt-v4a"):
        while True:
            if signer == "botocore":
                both = [by_botocore(service, region, host, request, presigned, keys) for keys in KEYS]
                if len({re.search(r"\d{8}T\d{6}Z", made).group() for made in both}) > 1:
                    continue  # A second passed between the two.
            else:
                both = [by_awscrt(service, region, host, request, presigned, keys, now, signer.endswith("a")) for keys in KEYS]
            break
        print(json.dumps({"signer": signer, "inside": both[0], "real": both[1]}))
