{{- define "criscope.labels" -}}
app.kubernetes.io/name: criscope
app.kubernetes.io/part-of: criscope
{{- end }}

{{- define "criscope.runtimes" -}}
containerd: {socket: /run/containerd, kubelet: /var/lib/kubelet, shims: true}
crio: {socket: /run/crio, kubelet: /var/lib/kubelet, shims: false}
k3s: {socket: /run/k3s/containerd, kubelet: /var/lib/kubelet, shims: true}
k0s: {socket: /run/k0s, kubelet: /var/lib/k0s/kubelet, shims: true}
microk8s: {socket: /var/snap/microk8s/common/run, kubelet: /var/snap/microk8s/common/var/lib/kubelet, shims: true}
{{- end }}
