{{/* What a program may do in its own namespace: read the policy, hold its Lease. Arguments: `root`, `name`. */}}
{{- define "vm-rebalancer.ownRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "vm-rebalancer.labels" .root | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [{{ include "vm-rebalancer.policyConfigMap" .root }}]
    verbs: [list, watch]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ .name }}]
    verbs: [get, update]
  # A name cannot be checked when an object is created.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "vm-rebalancer.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
