"""What people do with boto3, unmodified. Prints a line for each thing that worked, or how it was refused."""

import hashlib
import os
import sys
import urllib.error
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

style = Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 1})
s3 = boto3.client("s3", config=style)
KEYS = ["plain.txt", "a b+c/ü%20~!*.txt", "deep/er/key=1&x?y#z", "(1) 'quoted' \"twice\".txt"]


def attempt(name, action):
    try:
        print(name, action())
    except ClientError as error:
        print(name, error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
    except urllib.error.HTTPError as error:
        print(name, "HTTP", error.code)


def round_trip(key):
    body = key.encode() * 999
    s3.put_object(Bucket="bucket", Key=key, Body=body, ContentType="text/plain")
    assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == body
    part = s3.get_object(Bucket="bucket", Key=key, Range="bytes=2-5")
    assert part["ResponseMetadata"]["HTTPStatusCode"] == 206 and part["Body"].read() == body[2:6]
    return "ok"


def presigned():
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "pre signed+ü"}, ExpiresIn=600)
    request = urllib.request.Request(url, data=b"by a URL", method="PUT")
    urllib.request.urlopen(request).read()
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "pre signed+ü"}, ExpiresIn=600)
    assert os.environ["AWS_ACCESS_KEY_ID"] in url
    return urllib.request.urlopen(url).read().decode()


def large():
    size, path = int(os.environ.get("LARGE", "200")) << 20, "large"
    block, digest = os.urandom(1 << 20), hashlib.sha256()
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
            digest.update(block)
    s3.upload_file(path, "bucket", "large", Config=TransferConfig(max_concurrency=4))
    os.remove(path)
    found = hashlib.sha256()
    for part in s3.get_object(Bucket="bucket", Key="large")["Body"].iter_chunks(1 << 20):
        found.update(part)
    assert found.digest() == digest.digest()
    s3.delete_object(Bucket="bucket", Key="large")
    return size


def listed():
    names = [entry["Key"] for entry in s3.list_objects_v2(Bucket="bucket", Prefix="plain")["Contents"]]
    return names


for wanted in sys.argv[1].split():
    if wanted == "keys":
        for key in KEYS:
            attempt(key, lambda: round_trip(key))
    else:
        attempt(wanted, globals()[wanted])
