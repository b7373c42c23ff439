"""A support agent: it looks up charges, makes one good, and tries to tell a stranger about it.

It is an ordinary program. It reads its key from the environment and calls the payment service by its real name;
it knows nothing of proxies, placeholders or approvals. What it got is in `report.json`.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request

API = "https://api.stripe.com/v1"
KEY = os.environ["STRIPE_KEY"]


def call(method: str, url: str, form: dict[str, str] | None = None, key: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, method=method)
    if form is not None:
        request.data = urllib.parse.urlencode(form).encode()
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def main() -> None:
    print(f"key:     STRIPE_KEY is {KEY[:12]}… ({len(KEY)} characters)")
    read, charges = call("GET", f"{API}/charges?limit=3", key=KEY)
    print(f"read:    {read} {charges.strip()}")
    credit, note = call("POST", f"{API}/credit_notes", {"invoice": "in_1", "amount": "9900"}, key=KEY)
    print(f"credit:  {credit} {note.strip()}")
    told, answer = call("GET", "https://collector.example.net/report")
    print(f"leak:    {told} {answer.split(';')[0]}")

    report = {"key": KEY, "read": read, "charges": charges, "credit": credit, "stranger": told, "answer": answer}
    with open("report.json", "w", encoding="utf-8") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main()
