# SPDX-License-Identifier: Apache-2.0
"""A client of S3, as small as can be: looks into a bucket without the code under test."""
import datetime
import hashlib
import hmac
import http.client
import threading
import urllib.parse
import xml.etree.ElementTree

KEY, SECRET, REGION = "cairntest", "cairnsecret", "us-east-1"


class S3Error(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.body = status, body


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method, host, path, query, headers, payload_hash, credentials, now):
    """AWS Signature Version 4: the Authorization header."""
    key, secret, region = credentials
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-date": stamp, "x-amz-content-sha256": payload_hash}
    signed |= {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-amz-")}
    names = ";".join(sorted(signed))
    lines = [method, path, query, *(f"{name}:{signed[name]}" for name in sorted(signed)), "", names, payload_hash]
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()])
    signing = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        signing = mac(signing, part)
    proof = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    return f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={proof}"


class S3Client:
    """One server, one pair of keys; a connection for each thread, path style."""

    def __init__(self, endpoint, key=KEY, secret=SECRET, region=REGION):
        self.host, self.credentials = endpoint.removeprefix("http://").rstrip("/"), (key, secret, region)
        self.local = threading.local()

    def connection(self, fresh=False):
        if fresh or not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection(self.host, timeout=300)
        return self.local.connection

    def request(self, method, path, query=None, body=b"", headers=None):
        """The answer's body and headers; S3Error for anything but 2xx."""
        target = urllib.parse.quote(path, safe="/-_.~")
        text = "&".join(sorted(f"{quote(name)}={quote(value)}" for name, value in (query or {}).items()))
        for turn in range(2):
            sent = self.signed(method, target, text, body, headers or {})
            try:
                connection = self.connection(fresh=turn > 0)
                connection.request(method, target + ("?" + text if text else ""), body or None, sent)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (http.client.HTTPException, OSError):
                if turn:
                    raise
        if answer.status >= 300:
            raise S3Error(answer.status, data)
        return data, answer.headers

    def signed(self, method, path, query, body, headers):
        payload_hash = hashlib.sha256(body).hexdigest()
        now = datetime.datetime.now(datetime.timezone.utc)
        proof = signature(method, self.host, path, query, headers, payload_hash, self.credentials, now)
        stamp = now.strftime("%Y%m%dT%H%M%SZ")
        return {"x-amz-date": stamp, "x-amz-content-sha256": payload_hash, "Authorization": proof, **headers}

    def make_bucket(self, bucket):
        self.request("PUT", f"/{bucket}")

    def put(self, bucket, key, data, **headers):
        self.request("PUT", f"/{bucket}/{key}", body=data, headers=headers)

    def get(self, bucket, key, first=None, last=None):
        headers = {} if first is None else {"Range": f"bytes={first}-{last}"}
        return self.request("GET", f"/{bucket}/{key}", headers=headers)[0]

    def delete(self, bucket, key):
        self.request("DELETE", f"/{bucket}/{key}")

    def copy(self, bucket, key, target):
        self.request("PUT", f"/{bucket}/{target}", headers={"x-amz-copy-source": urllib.parse.quote(f"/{bucket}/{key}")})

    def list(self, bucket, prefix=""):
        """key -> size of everything below a prefix."""
        found, token = {}, None
        while True:
            query = {"list-type": "2", "prefix": prefix, **({"continuation-token": token} if token else {})}
            tree = xml.etree.ElementTree.fromstring(self.request("GET", f"/{bucket}", query)[0])
            space = tree.tag[: tree.tag.index("}") + 1] if tree.tag.startswith("{") else ""
            for item in tree.iter(space + "Contents"):
                found[item.findtext(space + "Key")] = int(item.findtext(space + "Size"))
            token = tree.findtext(space + "NextContinuationToken")
            if not token:
                return found


def quote(text):
    return urllib.parse.quote(text, safe="-_.~")
