"""A machine that runs pods, in the namespaces of the calling process: what container runtime and kubelet make of a pod's
manifest, with the programs of a build in place of an image. Example:

    node = Node(bin="build/release/bin")
    node.add_objects(documents)                       # ConfigMaps, Services; Secrets by node.secrets
    pod = node.start("tp-worker-0", spec, labels)     # runs its container
    node.wait_ready(pod);  pod.execute(["ls"]);  pod.stop()
"""

import math
import os
import shlex
import subprocess
import time
import urllib.error
import urllib.request

import cluster_dns
import grpc

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACE = "tensorplane"
DOMAIN = "svc.cluster.local"
GATEWAY = "10.32.0.1"
GIVE_UP_SECONDS = 120
UNITS = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def run(*words, **options):
    return subprocess.run(words, check=True, **options)


def quantity(text):
    for unit, factor in UNITS.items():
        if str(text).endswith(unit):
            return float(str(text)[:-len(unit)]) * factor
    return float(text)


def eventually(condition, what):
    """Polls, as kubelet does; only what is broken reaches the limit."""
    end = time.monotonic() + GIVE_UP_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not in {GIVE_UP_SECONDS} s")
        time.sleep(0.1)


# The root of a container: /usr of this machine with the build in place of /usr/local/bin, a small /etc, the pod's volumes,
# and nothing that may be written but those.
ROOT_SCRIPT = """
set -eu
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
cd "$ROOT"
mkdir usr etc proc sys dev var tmp root run
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
mount --rbind -o ro /usr usr
mount -o remount,ro,bind usr
mount --bind "$BIN" usr/local/bin
mount -o remount,ro,bind usr/local/bin
cp -a /etc/alternatives /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d etc/
printf '127.0.0.1 localhost\\n%%s %%s\\n' "$ADDRESS" "$NAME" >etc/hosts
echo "hosts: files dns" >etc/nsswitch.conf
echo "root:x:0:0::/:/bin/sh" >etc/passwd
printf 'search %(search)s\\nnameserver %(gateway)s\\noptions ndots:5\\n' >etc/resolv.conf
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mkdir dev/shm
mount -t tmpfs -o size=64m tmpfs dev/shm
%(mounts)s
mount -o remount,ro dev
mount -o remount,ro "$ROOT"
exec chroot "$ROOT" %(command)s
"""


class Pod:
    def __init__(self, node, name, spec, labels, address):
        self.node, self.name, self.labels, self.address = node, name, labels, address
        self.spec, (self.container,) = spec, spec["containers"]
        self.log = os.path.join(node.folder, name + ".log")
        self.process = None

    def _volume(self, volume, claims):
        """The folder of a volume, made where it is not there yet."""
        group = self.spec["securityContext"]["fsGroup"]
        name = volume["name"]
        if "persistentVolumeClaim" in volume or name in claims:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", f"{name}-{self.name}")
            folder, files, mode = os.path.join(self.node.folder, "claims", claim), None, None
        else:
            folder = os.path.join(self.node.folder, "volumes", f"{self.name}-{self.node.starts}", name)
            if "configMap" in volume:
                files, mode = self.node.config_maps[volume["configMap"]["name"]], 0o644
            elif "secret" in volume:
                files, mode = self.node.secrets[volume["secret"]["secretName"]], volume["secret"]["defaultMode"]
            else:
                files, mode = None, volume["emptyDir"] and None
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, 0, group)
        os.chmod(folder, 0o2775 if files is None else 0o755)
        if files is not None:  # links to links, as kubelet makes them to change all files at once
            os.makedirs(os.path.join(folder, "..1"))
            os.symlink("..1", os.path.join(folder, "..data"))
            for key, text in files.items():
                path = os.path.join(folder, "..1", key)
                with open(path, "w") as file:
                    file.write(text)
                os.chown(path, 0, group)
                os.chmod(path, mode)
                os.symlink(os.path.join("..data", key), os.path.join(folder, key))
        return folder

    def _environment(self):
        values = {"metadata.name": self.name, "metadata.namespace": NAMESPACE, "status.podIP": self.address}
        result = {"PATH": PATH, "HOSTNAME": self.name, "HOME": "/"}
        for variable in self.container.get("env", []):
            if "value" in variable:
                result[variable["name"]] = variable["value"]
            elif "fieldRef" in variable["valueFrom"]:
                result[variable["name"]] = values[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                kind, resource = variable["valueFrom"]["resourceFieldRef"]["resource"].split(".")
                result[variable["name"]] = str(math.ceil(quantity(self.container["resources"][kind][resource])))
        return result

    def _as_user(self, command):
        """The words that run a command in the container's user and environment."""
        context, own = self.spec["securityContext"], self.container["securityContext"]
        words = ["setpriv", f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}",
                 f"--groups={context['fsGroup']}"]
        if not own["allowPrivilegeEscalation"]:
            words.append("--no-new-privs")
        words += ["--inh-caps=-all"] + [f"--bounding-set=-{c.lower()}" for c in own["capabilities"]["drop"]]
        return words + ["env", "-i"] + [f"{k}={v}" for k, v in self._environment().items()] + command

    def start(self, command, claims):
        assert self.container["securityContext"]["readOnlyRootFilesystem"]
        volumes = {v["name"]: v for v in self.spec.get("volumes", [])}
        volumes.update({name: {"name": name} for name in claims})
        mounts = []
        for mount in sorted(self.container["volumeMounts"], key=lambda m: m["mountPath"]):
            source = shlex.quote(self._volume(volumes[mount["name"]], claims))
            target = shlex.quote(mount["mountPath"].lstrip("/"))
            mounts += [f"mkdir -p {target}", f"mount --bind {source} {target}"]
            if mount.get("readOnly"):
                mounts.append(f"mount -o remount,ro,bind {target}")
        root = os.path.join(self.node.folder, "roots", self.name)
        os.makedirs(root, exist_ok=True)
        script = ROOT_SCRIPT % {"mounts": "\n".join(mounts), "command": shlex.join(self._as_user(command)),
                                "search": f"{NAMESPACE}.{DOMAIN} {DOMAIN} cluster.local", "gateway": GATEWAY}
        environment = dict(os.environ, ROOT=root, BIN=self.node.bin, ADDRESS=self.address, NAME=self.name)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child",
                 "--propagation", "private", "sh", "-c", script],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def pid(self):
        """The container's first process (1 in its own namespace); 0 before there is one."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return int((file.read().split() + ["0"])[0])

    def running(self):
        """Whether the container's command has taken the place of what set it up."""
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}"
        if not self.pid():
            return False
        with open(f"/proc/{self.pid()}/comm") as file:
            return file.read().strip() == self.container["command"][0][:15]

    def execute(self, command, **options):
        """As `kubectl exec` does: in the container, as its user."""
        return run("nsenter", "--target", str(self.pid()), "--mount", "--net", "--pid", "--uts", "--root", "--wd=/",
                   *self._as_user(command), **options)

    def check_confined(self):
        """The running program has the user, the rights and the root that the manifest says."""
        status = dict(line.rstrip("\n").split(":\t", 1) for line in open(f"/proc/{self.pid()}/status"))
        user = str(self.spec["securityContext"]["runAsUser"])
        assert status["Uid"].split() == [user] * 4, status["Uid"]
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}, status
        assert status["NoNewPrivs"] == "1", status
        tried = subprocess.run(["touch", f"/proc/{self.pid()}/root/etc/tried"], stderr=subprocess.PIPE, text=True)
        assert "Read-only file system" in tried.stderr, tried

    def wait(self):
        return self.process.wait(GIVE_UP_SECONDS)

    def stop(self):
        """As kubelet: preStop, SIGTERM; 0 is expected before SIGKILL would come."""
        end = time.monotonic() + self.spec["terminationGracePeriodSeconds"]
        self.execute(self.container["lifecycle"]["preStop"]["exec"]["command"])
        assert self.process.poll() is None, f"{self.name} ended during preStop"
        os.kill(self.pid(), 15)
        code = self.process.wait(max(0, end - time.monotonic()))
        assert code == 0, f"{self.name} exits with {code} after SIGTERM"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def probe(self, kind):
        """One look of kubelet's."""
        probe = self.container[kind]
        timeout = probe.get("timeoutSeconds", 1)
        if "grpc" in probe:
            channel = grpc.insecure_channel(f"{self.address}:{probe['grpc']['port']}")
            try:
                answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=timeout)
            except grpc.RpcError:
                return False
            finally:
                channel.close()
            return answer == b"\x08\x01"  # status: SERVING
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        port = probe["httpGet"]["port"]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{ports.get(port, port)}{probe['httpGet']['path']}",
                                        timeout=timeout) as answer:
                return 200 <= answer.status < 400
        except (urllib.error.URLError, OSError):
            return False

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()


class Node:
    def __init__(self, bin):
        self.bin, self.starts, self.pods, self.addresses = bin, 0, {}, {}
        self.config_maps, self.secrets, self.services = {}, {}, []
        # Private to this process and its children: nothing is left behind.
        self.folder = "/media"
        for folder in ("/run/netns", self.folder):
            run("mount", "-t", "tmpfs", "tmpfs", folder)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", f"{GATEWAY}/24", "dev", "pods")
        run("ip", "link", "set", "pods", "up")
        cluster_dns.serve(GATEWAY, self.lookup)

    def add_objects(self, documents):
        self.config_maps.update({d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"})
        self.services += [d for d in documents if d["kind"] == "Service"]

    def add_pod(self, name, labels):
        """Its network, before it starts, so that all are known by name."""
        address = f"10.32.0.{len(self.addresses) + 10}"
        self.addresses[name] = (address, labels)
        run("ip", "netns", "add", name)
        host = f"veth{len(self.addresses)}"
        run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", host, "master", "pods", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", name, "route", "add", "default", "via", GATEWAY)

    def lookup(self, name):
        """Addresses of a Service, or of a pod of a headless one; None where there is no such name."""
        result = None
        for service in self.services:
            full = f"{service['metadata']['name']}.{NAMESPACE}.{DOMAIN}"
            for pod, (address, labels) in list(self.addresses.items()):
                if not all(labels.get(k) == v for k, v in service["spec"]["selector"].items()):
                    continue
                if name == full or (service["spec"].get("clusterIP") == "None" and name == f"{pod}.{full}"):
                    result = (result or []) + [address]
        return result

    def start(self, name, spec, labels, claims=(), args=None):
        """`args` in place of the manifest's, for what users run by hand."""
        self.starts += 1
        pod = self.pods[name] = Pod(self, name, spec, labels, self.addresses[name][0])
        container = pod.container
        pod.start(container["command"] + (container.get("args", []) if args is None else args), set(claims))
        return pod

    def wait_ready(self, pod):
        def alive(kind):
            assert pod.process.poll() is None, f"{pod.name} ended with {pod.process.returncode}"
            return pod.probe(kind)

        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            eventually(lambda: alive(kind), f"{pod.name}: {kind}")
