#!/usr/bin/env python3
"""deploy/ is what Kubernetes, Compose and minerva serve understand: deploy_test.py MINERVA FOLDER.

minerva-health is tried on a server. The manifests are compared with the API's schemas, field by field (the package lightkube-models has them,
from PyPI, installed below FOLDER once; without a network this part is skipped with a line), and with each other: names, ports, flags, keys."""
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import typing

import pypi
import served

MINERVA, FOLDER = sys.argv[1:3]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(served.ROOT, "deploy")
KINDS = {("v1", "Service"): "core_v1", ("apps/v1", "Deployment"): "apps_v1", ("apps/v1", "StatefulSet"): "apps_v1",
         ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling_v2", ("policy/v1", "PodDisruptionBudget"): "policy_v1",
         ("networking.k8s.io/v1", "NetworkPolicy"): "networking_v1"}
# Not of Kubernetes itself:
GROUP = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
ALERTS = ("monitoring.coreos.com/v1", "PrometheusRule")


def health():
    """minerva-health says what the server says."""
    script = os.path.join(DEPLOY, "minerva-health")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("# the keys\n\nsecret\nother\n")
        keys.flush()
        with served.Server(MINERVA, "--device", "cpu", "--api-key", keys.name, key="secret") as s:
            port = s.url.rsplit(":", 1)[1]
            run = lambda *args: subprocess.run(["bash", script, *args], capture_output=True, timeout=60).returncode
            assert run("live", "-", port) == 0 and run("ready", "-", port) == 0 and run("ready", keys.name, port) == 0
            assert run("other", "-", port) == 2  # no such question
            s.process.send_signal(signal.SIGSTOP)
            assert run("live", "-", port) == 1
            s.process.send_signal(signal.SIGCONT)
        assert run("live", "-", port) == 1  # nobody there
        certificate = [os.path.join(FOLDER, name) for name in ("cert.pem", "key.pem")]
        os.makedirs(FOLDER, exist_ok=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-out", certificate[0], "-keyout", certificate[1]], capture_output=True, check=True)
        with served.Server(MINERVA, "--device", "cpu", "--api-key", keys.name, "--tls-cert", certificate[0], "--tls-key", certificate[1], key="secret") as s:
            port = s.url.rsplit(":", 1)[1]
            assert run("live", "-", port) == 0 and run("ready", "-", port) == 0
    with open(os.path.join(DEPLOY, "Containerfile")) as f:
        image = f.read()
    assert "USER 10001" in image and "HEALTHCHECK" in image and "bookworm-slim" in image and '"--api-key", "/keys"' in image


def check(value, kind, where, module):
    """Raises if the value is not of the type, which is a class of the schema or of Python."""
    if isinstance(kind, str):
        kind = eval(kind, {**vars(typing), **vars(module)})
    if typing.get_origin(kind) is typing.Union:
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        errors = []
        for k in kinds:
            try:
                return check(value, k, where, module)
            except AssertionError as e:
                errors.append(e)
        raise errors[0]
    if isinstance(kind, typing.ForwardRef):
        return check(value, kind.__forward_arg__, where, module)
    if typing.get_origin(kind) is list:
        assert isinstance(value, list), "%s: expected a list" % where
        for i, v in enumerate(value):
            check(v, typing.get_args(kind)[0], "%s[%d]" % (where, i), module)
    elif dataclasses.is_dataclass(kind):
        check_object(value, kind, where)
    elif kind in (dict,) or typing.get_origin(kind) is dict:
        assert isinstance(value, dict), "%s: expected an object" % where
        for k, v in value.items():
            assert isinstance(k, str) and isinstance(v, (str, bytes, dict)), "%s.%s: expected a text" % (where, k)
    elif kind in (str, int, bool, float):
        assert isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), "%s: found %r, expected %s" % (where, value, kind.__name__)


def check_object(value, kind, where):
    assert isinstance(value, dict), "%s: expected an object, found %r" % (where, value)
    module = sys.modules[kind.__module__]
    fields = {f.metadata.get("json", f.name): f for f in dataclasses.fields(kind)}
    for name in value:
        assert name in fields, "%s.%s: %s has no such field" % (where, name, kind.__name__)
        check(value[name], fields[name].type, where + "." + name, module)
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        assert name in value or not required, "%s: %s needs %s" % (where, kind.__name__, name)


def schemas(target):
    """The modules of the package, which needs no more of its library than what dataclasses has."""
    core = types.ModuleType("lightkube.core")
    core.__path__ = []
    schema = types.ModuleType("lightkube.core.schema")
    schema.dataclass, schema.field, schema.DictMixin = dataclasses.dataclass, dataclasses.field, object
    sys.modules.update({"lightkube.core": core, "lightkube.core.schema": schema})
    sys.path.insert(0, target)
    import importlib
    return {name: importlib.import_module("lightkube.models." + name) for name in set(KINDS.values())}


def read_yaml(path):
    from ruamel.yaml import YAML
    with open(path) as f:
        return [d for d in YAML(typ="safe", pure=True).load_all(f) if d]


def flags():
    text = subprocess.run([MINERVA, "serve", "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


def check_args(args, where):
    assert all(isinstance(a, str) for a in args), where
    used = {a for a in args if re.match(r"-{1,2}[a-z]", a)}
    assert used <= flags(), (where, used - flags())


def pods(objects):
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if "template" in o["spec"]}


def find(objects, kind, name):
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


def check_pod(spec, where):
    volumes = {v["name"] for v in spec["volumes"]}
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001
    for c in spec["containers"]:
        assert c["command"] == ["minerva", "serve"], where
        check_args(c["args"], where)
        drain = int(c["args"][c["args"].index("--drain") + 1])
        assert spec["terminationGracePeriodSeconds"] > drain
        assert {m["name"] for m in c["volumeMounts"]} <= volumes, where
        assert c["readinessProbe"]["exec"]["command"] == ["minerva-health", "ready", c["args"][c["args"].index("--api-key") + 1]]
        assert c["livenessProbe"]["httpGet"] == {"path": "/health/live", "port": c["ports"][0]["name"]}
        assert c["ports"][0]["containerPort"] == 8080


def check_group(o, models):
    """The fields of the LeaderWorkerSet that are used; its pods by Kubernetes' own schema."""
    assert set(o) == {"apiVersion", "kind", "metadata", "spec"} and set(o["spec"]) <= {"replicas", "startupPolicy", "leaderWorkerTemplate"}
    assert o["spec"]["startupPolicy"] in ("LeaderCreated", "LeaderReady")
    template = o["spec"]["leaderWorkerTemplate"]
    assert set(template) <= {"size", "restartPolicy", "leaderTemplate", "workerTemplate"} and template["size"] > 1
    assert template["restartPolicy"] in ("RecreateGroupOnPodRestart", "None")
    check_object(template["workerTemplate"], models["core_v1"].PodTemplateSpec, "group")
    spec = template["workerTemplate"]["spec"]
    (container,) = spec["containers"]
    check_args(container["args"][0].split("exec minerva serve ")[1].split(), "group")
    assert {m["name"] for m in container["volumeMounts"]} <= {v["name"] for v in spec["volumes"]}


def documented_metrics():
    with open(os.path.join(served.ROOT, "docs", "serving.md")) as f:
        return set(re.findall(r"`(\w+)`", f.read().split("## Metrics")[1]))


def check_alerts(o):
    """A rule file of Prometheus: its fields, metrics that there are; promtool reads the expressions where it is installed."""
    assert set(o) == {"apiVersion", "kind", "metadata", "spec"} and set(o["spec"]) == {"groups"}
    metrics, names = documented_metrics(), []
    for group in o["spec"]["groups"]:
        assert set(group) <= {"name", "interval", "rules"} and group["rules"], group
        for rule in group["rules"]:
            where = rule["alert"]
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, where
            assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "1m")) and rule["labels"]["severity"] in ("critical", "warning", "info"), where
            assert set(rule["annotations"]) == {"summary", "description"}, where
            used = re.findall(r"\bminerva_(\w+)", rule["expr"])
            assert used and all(re.sub("_bucket$", "", m) in metrics for m in used), (where, used)
            for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
                assert label in ("instance", "model_name", "replica"), (where, label)
            names.append(where)
    assert len(set(names)) == len(names)
    promtool = shutil.which("promtool")
    if promtool:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(o["spec"], f)
            f.flush()
            done = subprocess.run([promtool, "check", "rules", f.name], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    else:
        print("skip  promtool is not installed: the alerts' expressions are not parsed")


def check_policy(o, objects):
    """A policy selects pods that there are, and lets through what they serve."""
    labels = [p["spec"]["template"]["metadata"]["labels"] for p in objects if "template" in p["spec"]] + [{"app": "minerva-group"}]
    assert any(pod.items() >= o["spec"]["podSelector"]["matchLabels"].items() for pod in labels), o["metadata"]["name"]
    assert o["spec"]["policyTypes"] == ["Ingress", "Egress"], o["metadata"]["name"]
    assert {"port": 8080, "protocol": "TCP"} in [p for rule in o["spec"]["ingress"] for p in rule.get("ports", ())]


def image():
    """What changes seldom comes first, the base is an argument, and nothing of the source is in it. tests/packages/image_root.py takes its steps."""
    with open(os.path.join(DEPLOY, "Containerfile")) as f:
        lines = [line.split("#")[0].strip() for line in f if line.strip() and not line.startswith("#")]
    assert lines[0].startswith("ARG BASE=") and [line for line in lines if line.startswith("FROM")] == ["FROM $BASE AS unpacked", "FROM $BASE"], lines
    last = lines[lines.index("FROM $BASE"):]
    assert next(i for i, line in enumerate(last) if line.startswith("RUN")) < next(i for i, line in enumerate(last) if line.startswith("COPY")), lines
    assert not any(line.startswith(("COPY .", "ADD")) for line in lines), lines


def kubernetes(models):
    objects = []
    for name in sorted(os.listdir(os.path.join(DEPLOY, "kubernetes"))):
        for o in read_yaml(os.path.join(DEPLOY, "kubernetes", name)):
            key = (o["apiVersion"], o["kind"])
            if key in (GROUP, ALERTS):
                check_alerts(o) if key == ALERTS else check_group(o, models)
                continue
            check_object(o, getattr(models[KINDS[key]], key[1]), name + ":" + key[1])
            objects.append(o)
    for name, spec in pods(objects).items():
        check_pod(spec, name)
    for o in objects:
        if o["kind"] == "NetworkPolicy":
            check_policy(o, objects)
    budgets = [o["spec"]["selector"]["matchLabels"]["app"] for o in objects if o["kind"] == "PodDisruptionBudget"]
    assert sorted(budgets) == ["minerva-front", "minerva-server"], budgets
    for s in (o for o in objects if o["kind"] == "Service"):
        assert any(o["spec"]["template"]["metadata"]["labels"].items() >= s["spec"]["selector"].items() for o in objects if "template" in o["spec"]), s
    servers, scaler = find(objects, "StatefulSet", "minerva"), find(objects, "HorizontalPodAutoscaler", "minerva")
    target = scaler["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", "minerva")
    headless = find(objects, "Service", servers["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    args = pods(objects)["minerva-front"]["containers"][0]["args"]
    expected = ["http://minerva-%d.%s:8080" % (i, headless["metadata"]["name"]) for i in range(scaler["spec"]["maxReplicas"])]
    assert args[args.index("--replicas") + 1:] == expected, args
    metrics = documented_metrics()
    for m in scaler["spec"]["metrics"]:
        assert m["pods"]["metric"]["name"][len("minerva_"):] in metrics, m
    mistakes(models, objects)


def mistakes(models, objects):
    """What the comparison with the schemas would find."""
    scaler = find(objects, "HorizontalPodAutoscaler", "minerva")
    for change in {"maxReplica": 3}, {"maxReplicas": "3"}, {"metrics": {}}, {"scaleTargetRef": {"name": "minerva"}}:
        try:
            check_object({**scaler, "spec": {**scaler["spec"], **change}}, models["autoscaling_v2"].HorizontalPodAutoscaler, "x")
        except AssertionError:
            continue
        raise AssertionError("%r was not found" % change)


def compose():
    (c,) = read_yaml(os.path.join(DEPLOY, "compose.yaml"))
    for name, s in c["services"].items():
        check_args(s["command"], name)
        assert set(s.get("depends_on", ())) <= set(c["services"])
        assert set(s) <= {"image", "command", "volumes", "restart", "stop_grace_period", "read_only", "tmpfs", "cap_drop", "security_opt", "build",
                          "depends_on", "ports"}, s
    urls = c["services"]["front"]["command"][1].split(",")
    assert urls == ["http://%s:8080" % name for name in c["services"] if name != "front"], urls
    build = next(s["build"] for s in c["services"].values() if "build" in s)
    assert os.path.exists(os.path.join(DEPLOY, build["context"], build["dockerfile"]))


def main():
    if not served.available(MINERVA):
        print("this minerva was built without its server")
        sys.exit(77)
    health()
    image()
    os.makedirs(FOLDER, exist_ok=True)
    target = pypi.install(FOLDER, os.path.join(HERE, "deploy_requirements.txt"), "deploy/kubernetes")
    if not target:
        sys.exit(77)
    models = schemas(target)
    kubernetes(models)
    compose()


main()
