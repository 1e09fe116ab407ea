"""Checks rendered manifests: every object against the schemas of the oldest and the newest Kubernetes that they are for,
then rules that no schema knows. Usage: manifests.py --version V --clusters FILE.. --jobs FILE.."""

import argparse
import sys

import kubernetes_validate
import yaml

KUBERNETES_VERSIONS = ("1.27", "1.37")
# Of cert-manager: no schema of Kubernetes has them. Nothing else may go unchecked.
WITHOUT_SCHEMA = {("cert-manager.io/v1", "Issuer"), ("cert-manager.io/v1", "Certificate")}
IMAGES = ("tensorplane", "tensorplane-cuda")
# What cert-manager writes.
SECRET_KEYS = {"tls.crt", "tls.key", "ca.crt"}

problems = []


def check(condition, where, text):
    if not condition:
        problems.append(f"{where}: {text}")


def load(path):
    with open(path) as file:
        return [document for document in yaml.safe_load_all(file) if document]


def name_of(document):
    return f"{document['kind']}/{document['metadata']['name']}"


def pod_of(document):
    """(labels, spec) of the pods that an object makes; None where it makes none."""
    if document["kind"] == "Pod":
        return document["metadata"].get("labels", {}), document["spec"]
    template = document.get("spec", {}).get("template") if isinstance(document.get("spec"), dict) else None
    return (template["metadata"].get("labels", {}), template["spec"]) if template else None


def selects(selector, labels):
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        if rule["operator"] != "In":
            raise ValueError(f"operator {rule['operator']}")
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


def check_schemas(where, document):
    if (document["apiVersion"], document["kind"]) in WITHOUT_SCHEMA:
        return
    for version in KUBERNETES_VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            check(False, where, f"Kubernetes {version}: {getattr(error, 'message', error)}")


def check_pod(where, spec, version, host_network):
    context = spec.get("securityContext", {})
    check(context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0, where, "may run as root")
    check(context.get("runAsGroup", 0) > 0, where, "runs in the group root")
    check(context.get("seccompProfile", {}).get("type") == "RuntimeDefault", where, "has no seccomp profile")
    check(spec.get("automountServiceAccountToken") is False, where, "mounts a token")
    check(spec.get("serviceAccountName"), where, "runs as the account `default`")
    for field in ("hostPID", "hostIPC"):
        check(not spec.get(field), where, f"sets {field}")
    check(bool(spec.get("hostNetwork")) == host_network, where, f"hostNetwork is {spec.get('hostNetwork')}")
    check(not spec.get("initContainers"), where, "has initContainers, which no rule here looks at")
    for container in spec["containers"]:
        at = f"{where}/{container['name']}"
        own = container.get("securityContext", {})
        check(own.get("readOnlyRootFilesystem") is True, at, "may write to its root")
        check(own.get("allowPrivilegeEscalation") is False, at, "may gain privileges")
        check(own.get("capabilities", {}) == {"drop": ["ALL"]}, at, "keeps capabilities")
        check(not own.get("privileged"), at, "is privileged")
        resources = container.get("resources", {})
        check({"cpu", "memory"} <= set(resources.get("requests", {})), at, "requests no cpu or no memory")
        check("memory" in resources.get("limits", {}), at, "has no limit of memory")
        check(container["image"] in [f"{image}:{version}" for image in IMAGES], at, f"image {container['image']}")
        check(container.get("command"), at, "leaves the command to the image")
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("claims", [])}
        mounts = container.get("volumeMounts", [])
        for mount in mounts:
            check(mount["name"] in volumes, at, f"mounts volume {mount['name']}, which is not there")
        check(len({mount["mountPath"] for mount in mounts}) == len(mounts), at, "mounts two volumes at one path")
        names = [variable["name"] for variable in container.get("env", [])]
        check(len(set(names)) == len(names), at, "sets a variable twice")
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind)
            check(bool(probe) == bool(ports), at, f"{kind}: one where there are ports, none elsewhere")
            if not probe:
                continue
            check(("grpc" in probe) != ("httpGet" in probe), at, f"{kind} asks in one way")
            port = probe.get("grpc", probe.get("httpGet"))["port"]
            check(port in ports or port in ports.values(), at, f"{kind}: port {port} is not one of {ports}")


def check_grace(where, spec, config):
    """Time between preStop's start and SIGKILL: enough for the drain that the program was told."""
    for container in spec["containers"]:
        pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        drain = [float(line.split(":")[1]) for line in config[container["args"][1].split("/")[-1]].splitlines()
                 if line.startswith("drain_seconds:")]
        check(len(drain) == 1, where, "its config sets no drain_seconds")
        check(spec["terminationGracePeriodSeconds"] >= pause + drain[0] + 10, where, "is killed while it drains")


class Render:
    """The objects of a cluster, and what they refer to among themselves."""

    def __init__(self, path):
        self.documents = load(path)
        self.name = path.split("/")[-1]
        self.pods = [(name_of(d), *pod_of(d)) for d in self.documents if pod_of(d)]

    def names(self, kind):
        return {d["metadata"]["name"] for d in self.documents if d["kind"] == kind}

    def get(self, kind, name):
        return next(d for d in self.documents if d["kind"] == kind and d["metadata"]["name"] == name)

    def secrets(self):
        return {d["spec"]["secretName"] for d in self.documents if d["kind"] == "Certificate"}

    def services(self):
        return {d["metadata"]["name"]: {port["port"] for port in d["spec"]["ports"]}
                for d in self.documents if d["kind"] == "Service"}


def check_references(render, cluster):
    """What `render` names is in it, or in the `cluster` that it is for."""
    def known(kind):
        return render.names(kind) | cluster.names(kind)

    for owner, _, spec in render.pods:
        where = f"{render.name}: {owner}"
        check(spec["serviceAccountName"] in known("ServiceAccount"), where, "its ServiceAccount is not there")
        paths = {}
        for volume in spec.get("volumes", []):
            (kind, source), = [item for item in volume.items() if item[0] != "name"]
            found = {"configMap": lambda s: s["name"] in known("ConfigMap"),
                     "secret": lambda s: s["secretName"] in cluster.secrets(),
                     "persistentVolumeClaim": lambda s: s["claimName"] in known("PersistentVolumeClaim"),
                     "emptyDir": lambda s: True}[kind](source)
            check(found, where, f"volume {volume['name']}: its {kind} is not there")
            if kind == "configMap" and found:
                owner_render = render if source["name"] in render.names("ConfigMap") else cluster
                paths[volume["name"]] = set(owner_render.get("ConfigMap", source["name"])["data"])
            if kind == "secret":
                paths[volume["name"]] = SECRET_KEYS
        for container in spec["containers"]:
            files = {f"{mount['mountPath']}/{key}" for mount in container.get("volumeMounts", [])
                     for key in paths.get(mount["name"], ())}
            roots = {path.rsplit("/", 1)[0] for path in files}
            words = container.get("args", []) + [variable.get("value", "") for variable in container.get("env", [])]
            for word in words:
                if any(word.startswith(root + "/") for root in roots):
                    check(word in files, where, f"{word} is in no volume")
            for variable in container.get("env", []):
                if variable["name"] in ("TP_SERVER", "TPCTL_SERVER"):
                    host, port = variable["value"].split(":")
                    check(int(port) in cluster.services().get(host, ()), where, f"{variable['value']} is no Service")


def check_cluster(render, host_network):
    for document in render.documents:
        where = f"{render.name}: {name_of(document)}"
        kind, spec = document["kind"], document.get("spec", {})
        if kind != "Namespace":
            check(document["metadata"].get("namespace") == "tensorplane", where, "is in another namespace")
        if kind == "StatefulSet":
            labels = spec["template"]["metadata"]["labels"]
            check(selects(spec["selector"], labels), where, "does not select its own pods")
            check(spec["serviceName"] in render.names("Service"), where, f"no Service {spec['serviceName']}")
            check(any(d["kind"] == "PodDisruptionBudget" and selects(d["spec"]["selector"], labels)
                      for d in render.documents), where, "no PodDisruptionBudget covers it")
            check(any(d["kind"] == "NetworkPolicy" and selects(d["spec"]["podSelector"], labels)
                      for d in render.documents), where, "no NetworkPolicy covers it")
            config, = [v["configMap"]["name"] for v in spec["template"]["spec"]["volumes"] if v["name"] == "config"]
            check_grace(where, spec["template"]["spec"], render.get("ConfigMap", config)["data"])
        if kind == "Service":
            chosen = [s for _, labels, s in render.pods if selects({"matchLabels": spec["selector"]}, labels)]
            check(len(chosen) == 1, where, f"selects {len(chosen)} workloads")
            for port in spec["ports"]:
                ports = {p["name"]: p["containerPort"] for s in chosen for c in s["containers"] for p in c["ports"]}
                check(ports.get(port["targetPort"]) == port["port"], where, f"port {port['port']} leads nowhere")
        if kind == "NetworkPolicy":
            chosen = [s for _, labels, s in render.pods if selects(spec["podSelector"], labels)]
            check(len(chosen) == 1, where, f"selects {len(chosen)} workloads")
            names = {p["name"] for s in chosen for c in s["containers"] for p in c["ports"]}
            for rule in spec["ingress"]:
                check(rule["from"], where, "lets everybody in")
                for port in rule.get("ports", []):
                    check(port["port"] in names, where, f"port {port['port']} is not one of {sorted(names)}")
                for peer in rule["from"]:
                    labels = peer.get("podSelector", {}).get("matchLabels", {})
                    if "app.kubernetes.io/component" in labels:
                        check(any(selects(peer["podSelector"], pod) for _, pod, _ in render.pods), where,
                              f"lets in {labels}, which no pod is")
        if kind == "Certificate":
            check(spec["issuerRef"]["name"] in render.names("Issuer"), where, "its Issuer is not there")
        if kind == "Issuer" and "ca" in spec:
            check(spec["ca"]["secretName"] in render.secrets(), where, "its Secret is not there")
    for owner, labels, spec in render.pods:
        worker = labels["app.kubernetes.io/component"] == "worker"
        gpus = spec["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0)
        cuda = spec["containers"][0]["image"].startswith("tensorplane-cuda:")
        check(cuda == (gpus == 1) == (worker and "gpu" in render.name), f"{render.name}: {owner}",
              "images with CUDA, GPUs and overlays for GPUs go together")
    insecure = any("\ninsecure: true" in text for d in render.documents if d["kind"] == "ConfigMap"
                   for text in d["data"].values())
    check(insecure == (not render.secrets()), render.name, "plain text and TLS exclude each other")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--clusters", nargs="+", required=True)
    parser.add_argument("--jobs", nargs="+", required=True)
    arguments = parser.parse_args()
    clusters = [Render(path) for path in arguments.clusters]
    jobs = [Render(path) for path in arguments.jobs]
    with_tls = next(c for c in clusters if c.name == "tls.yaml")
    plain = next(c for c in clusters if c.name == "cpu-gloo.yaml")
    objects = 0
    for render in clusters + jobs:
        for document in render.documents:
            objects += 1
            check_schemas(f"{render.name}: {name_of(document)}", document)
            pod = pod_of(document)
            if pod:
                spec = dict(pod[1], claims=document["spec"].get("volumeClaimTemplates", []))
                check_pod(f"{render.name}: {name_of(document)}", spec, arguments.version,
                          "host-network" in render.name and name_of(document) == "StatefulSet/tp-worker")
    for render in clusters:
        check_references(render, render)
        check_cluster(render, "host-network" in render.name)
    for render in jobs:
        check_references(render, with_tls if "tls" in render.name else plain)
        for owner, labels, spec in render.pods:
            if any(v["name"] == "TPCTL_SERVER" for c in spec["containers"] for v in c.get("env", [])):
                check(labels.get("tensorplane.client") == "true", f"{render.name}: {owner}", "no policy lets it in")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(f"manifests.py: {objects} objects of {len(clusters) + len(jobs)} renders are in order for Kubernetes "
          f"{' and '.join(KUBERNETES_VERSIONS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
