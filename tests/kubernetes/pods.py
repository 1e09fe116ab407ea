"""Runs a rendered cluster and its Job on a Node, and checks what they answer. Started by pods.sh, as root, in namespaces
of its own. Usage: pods.py --bin FOLDER --cluster FILE --job FILE --models FILE"""

import argparse
import copy
import json
import os
import re
import struct
import subprocess
import sys
import urllib.request

import yaml

from node import Node, eventually, run

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/demo")
USAGES = {"server auth": "serverAuth", "client auth": "clientAuth"}


def load(path):
    with open(path) as file:
        return [document for document in yaml.safe_load_all(file) if document]


def reference(name):
    """Rows of a tensor of mlp.reference.safetensors, which numpy computed."""
    with open(os.path.join(DEMO, "mlp.reference.safetensors"), "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + size])[name]
    begin, end = entry["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
    width = entry["shape"][1]
    return [values[i:i + width] for i in range(0, len(values), width)]


def secrets(documents, folder):
    """What cert-manager writes for the Certificates: keys of secretName to tls.crt, tls.key, ca.crt."""
    certificates = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Certificate"}
    result = {}
    os.makedirs(folder)

    def path(name):
        return os.path.join(folder, name)

    def text(name):
        with open(path(name)) as file:
            return file.read()

    # The authority first.
    for name, spec in sorted(certificates.items(), key=lambda item: not item[1].get("isCA", False)):
        assert spec["privateKey"]["algorithm"] == "ECDSA" and spec["privateKey"]["size"] == 256
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path(f"{name}.key"))
        subject = f"/CN={spec['commonName']}"
        if spec.get("isCA"):
            run("openssl", "req", "-x509", "-new", "-key", path(f"{name}.key"), "-subj", subject, "-days", "2",
                "-out", path(f"{name}.crt"))
            authority = name
        else:
            names = [f"DNS:{n}" for n in spec.get("dnsNames", [])] + [f"IP:{a}" for a in spec.get("ipAddresses", [])]
            usages = ",".join(USAGES[usage] for usage in spec["usages"] if usage in USAGES)
            with open(path("extensions"), "w") as file:
                file.write(f"subjectAltName={','.join(names)}\nextendedKeyUsage={usages}\nkeyUsage=digitalSignature\n")
            run("openssl", "req", "-new", "-key", path(f"{name}.key"), "-subj", subject, "-out", path("request"))
            run("openssl", "x509", "-req", "-in", path("request"), "-CA", path(f"{authority}.crt"), "-CAkey",
                path(f"{authority}.key"), "-CAcreateserial", "-days", "1", "-extfile", path("extensions"), "-out",
                path(f"{name}.crt"), stderr=subprocess.DEVNULL)
        result[spec["secretName"]] = {"tls.crt": text(f"{name}.crt"), "tls.key": text(f"{name}.key"),
                                      "ca.crt": text(f"{authority}.crt")}
    return result


class Scenario:
    def __init__(self, arguments):
        cluster, job, models = load(arguments.cluster), load(arguments.job), load(arguments.models)
        self.node = Node(arguments.bin)
        self.node.add_objects(cluster + job)
        self.node.secrets = secrets(cluster, os.path.join(self.node.folder, "certificates"))
        self.sets = {d["metadata"]["name"]: d["spec"] for d in cluster if d["kind"] == "StatefulSet"}
        self.job, = [d["spec"]["template"] for d in job if d["kind"] == "Job"]
        self.models, = models
        self.client_count = 0

    def add_set(self, name):
        spec = self.sets[name]
        names = [f"{name}-{i}" for i in range(spec["replicas"])]
        for pod in names:
            self.node.add_pod(pod, spec["template"]["metadata"]["labels"])
        return names

    def start(self, pod):
        spec = self.sets[pod.rsplit("-", 1)[0]]
        claims = [c["metadata"]["name"] for c in spec.get("volumeClaimTemplates", [])]
        return self.node.start(pod, spec["template"]["spec"], spec["template"]["metadata"]["labels"], claims)

    def restart(self, pod):
        self.node.pods[pod].stop()
        self.start(pod)
        self.node.wait_ready(self.node.pods[pod])

    def states(self):
        code, out = self.client(["--output-format", "json", "models"])
        assert code == 0, out
        return [model["state"] for model in json.loads(out)["models"]]

    def client(self, args=None, without=()):
        """Runs the Job's container to its end, with its own arguments or others; its exit code and what it printed.
        `without`: variables that it does not get."""
        self.client_count += 1
        name = f"client-{self.client_count}"
        labels = self.job["metadata"]["labels"]
        self.node.add_pod(name, labels)
        spec = copy.deepcopy(self.job["spec"])
        spec["containers"][0]["env"] = [v for v in spec["containers"][0]["env"] if v["name"] not in without]
        pod = self.node.start(name, spec, labels, args=args)
        code = pod.wait()
        return code, pod.output()

    def forward_answers(self):
        """mlp's answers through the Service, against numpy's."""
        for row, expected in ((reference("x_1")[0], reference("y_1")[0]), (reference("x_0")[4], reference("y_0")[4])):
            code, out = self.client(["forward", "mlp", "--input", "x=" + ",".join(repr(v) for v in row)])
            assert code == 0, out
            answer = json.loads(re.search(r"^y +F32\[1, 8\] +(\[.*\])$", out, re.MULTILINE).group(1))
            assert len(answer) == len(expected), out
            assert all(abs(a - e) < 1e-5 for a, e in zip(answer, expected)), (answer, expected)

    def copy_models(self):
        """As deploy/kubernetes/README.md says: through the pod tp-models."""
        self.node.add_pod("tp-models", self.models["metadata"]["labels"])
        pod = self.node.start("tp-models", self.models["spec"], self.models["metadata"]["labels"])
        eventually(pod.running, "tp-models")
        archive = run("tar", "-C", DEMO, "-cf", "-", "mlp.safetensors", stdout=subprocess.PIPE).stdout
        pod.execute(["tar", "-C", "/models", "-xmf", "-"], input=archive)
        pod.kill()

    def run(self):
        self.copy_models()
        (coordinator,), workers = self.add_set("tp-coordinator"), self.add_set("tp-worker")
        # Workers first: they have to wait for the coordinator.
        for pod in workers + [coordinator]:
            self.start(pod)
        for pod in workers + [coordinator]:
            self.node.wait_ready(self.node.pods[pod])
            self.node.pods[pod].check_confined()
        print("  ready:", ", ".join([coordinator] + workers), flush=True)

        def joined():
            code, out = self.client(["--output-format", "json", "workers"])
            assert code == 0, out
            return sorted(worker["id"] for worker in json.loads(out)["workers"]) == workers

        eventually(joined, "workers, called like their pods")
        if self.node.secrets:
            for without in (["TP_TLS_CERT", "TP_TLS_KEY"], ["TP_TLS_CERT", "TP_TLS_KEY", "TP_TLS_CA"]):
                code, out = self.client(["--timeout", "5", "workers"], without)
                assert code == 1 and "worker-0" not in out, out
        code, out = self.client()
        assert code == 0, out
        self.forward_answers()
        print("  the Job's submission serves", flush=True)
        for pod in workers + [coordinator]:
            with urllib.request.urlopen(f"http://{self.node.pods[pod].address}:9464/metrics", timeout=10) as answer:
                assert b"# TYPE tp_" in answer.read(), f"{pod}: no metrics"

        # A worker that leaves ends the model; a restart of the coordinator loads it again.
        self.restart(workers[1])
        assert self.states() == ["FAILED"], self.states()
        self.restart(coordinator)
        eventually(lambda: self.states() == ["READY"], "the model after the coordinator's restart")
        self.forward_answers()
        print("  the model is back after restarts of a worker and the coordinator", flush=True)
        for pod in workers + [coordinator]:
            self.node.pods[pod].stop()
        print("  SIGTERM: all ended with 0", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "cluster", "job", "models"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    print("pods.py:", os.path.basename(arguments.cluster), flush=True)
    scenario = Scenario(arguments)
    try:
        scenario.run()
    except BaseException:
        for pod in scenario.node.pods.values():
            print(f"----- {pod.name}\n{pod.output()[-3000:]}", file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
