{{/*
What the two programs and the clean-up have in common. The argument is a dict of `root`, `program` (its command) and
`settings` (its values).
*/}}

{{- define "vm-rebalancer.programName" -}}
{{ include "vm-rebalancer.fullname" .root }}-{{ .program }}
{{- end -}}

{{- define "vm-rebalancer.programSelector" -}}
{{ include "vm-rebalancer.selector" .root }}
app.kubernetes.io/component: {{ .program }}
{{- end -}}

{{- define "vm-rebalancer.arguments" -}}
- {{ .program }}
- --policy-configmap={{ .root.Release.Namespace }}/{{ include "vm-rebalancer.policyConfigMap" .root }}
- --lease={{ .root.Release.Namespace }}/{{ include "vm-rebalancer.programName" . }}
- --log-format={{ .root.Values.log.format }}
- --log-level={{ .root.Values.log.level }}
{{- end -}}

{{- define "vm-rebalancer.container" -}}
{{- $values := .root.Values -}}
image: {{ include "vm-rebalancer.image" .root }}
imagePullPolicy: {{ $values.image.pullPolicy }}
resources:
  {{- toYaml .settings.resources | nindent 2 }}
{{- with .settings.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  readOnlyRootFilesystem: true
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if eq $values.platform "openshift" }}
  - name: service-ca
    mountPath: /etc/prometheus-ca
    readOnly: true
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* No user and no group: OpenShift assigns them, elsewhere the image's are used. */}}
{{- define "vm-rebalancer.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "vm-rebalancer.programName" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 16Mi
  {{- if eq $values.platform "openshift" }}
  - name: service-ca
    configMap:
      name: {{ include "vm-rebalancer.fullname" .root }}-service-ca
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "vm-rebalancer.podMetadata" -}}
{{- $values := .root.Values -}}
labels:
  {{- include "vm-rebalancer.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "vm-rebalancer.deployment" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "vm-rebalancer.programName" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "vm-rebalancer.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .program }}
spec:
  replicas: {{ .settings.replicas }}
  selector:
    matchLabels:
      {{- include "vm-rebalancer.programSelector" . | nindent 6 }}
  template:
    metadata:
      {{- include "vm-rebalancer.podMetadata" (set . "component" .program) | nindent 6 }}
    spec:
      {{- include "vm-rebalancer.pod" . | nindent 6 }}
      topologySpreadConstraints:
        {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "vm-rebalancer.programSelector" $ | nindent 14 }}
        {{- end }}
      containers:
        - name: {{ .program }}
          {{- include "vm-rebalancer.container" . | nindent 10 }}
          args:
            {{- include "vm-rebalancer.arguments" . | nindent 12 }}
            - --lease-duration={{ $values.leaderElection.leaseDuration }}
            - --renew-deadline={{ $values.leaderElection.renewDeadline }}
            - --retry-period={{ $values.leaderElection.retryPeriod }}
            {{- with .settings.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: 8080
              protocol: TCP
          # Listing a large cluster takes a while; before that, liveness says nothing.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 5
            failureThreshold: 24
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 20
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
{{- end -}}
