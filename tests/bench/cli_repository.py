"""A repository of manifests as teams have them: many files, of which few ask for GPUs."""

from pathlib import Path

PLAIN = """\
# Source: shop/templates/{name}.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name} # the team's own
  namespace: team-{team}
  labels: {{app: "{name}", tier: 'backend'}}
spec:
  replicas: 3
  selector:
    matchLabels:
      app: "{name}"
  template:
    metadata:
      labels:
        app: "{name}"
    spec:
      containers:
        - name: main
          image: "registry.example/{name}:1.0"
          args: ["--listen", ":8080"]
          env:
{env}
          resources:
            limits:
              cpu: 1
              memory: 4Gi
{gpu}          livenessProbe: {{httpGet: {{path: /healthz, port: 8080}}}}
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: "{name}"}}
  ports:
    - port: 80
      targetPort: 8080 # the container's
"""

GPU = """\
              nvidia.com/gpu: 1 # a share
              nvidia.com/gpumem: {memory}
              nvidia.com/gpucores: 30
"""


def write_repository(root: Path, *, files: int, one_in: int) -> None:
    """Write files, one of so many with a legacy Deployment."""
    env = "\n".join(
        f"            - name: VARIABLE_{n}\n              value: value-{n}" for n in range(20)
    )
    for index in range(files):
        directory = root / f"team-{index % 50}"
        directory.mkdir(parents=True, exist_ok=True)
        gpu = GPU.format(memory=1000 + index % 40) if index % one_in == 0 else ""
        text = PLAIN.format(name=f"service-{index}", team=index % 50, env=env, gpu=gpu)
        (directory / f"service-{index}.yaml").write_text(text)
