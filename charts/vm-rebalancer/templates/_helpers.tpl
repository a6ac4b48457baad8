{{- define "vm-rebalancer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 45 characters, so that the longest suffix still fits into a label. */}}
{{- define "vm-rebalancer.fullname" -}}
{{- $name := include "vm-rebalancer.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "vm-rebalancer.selector" -}}
app.kubernetes.io/name: {{ include "vm-rebalancer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vm-rebalancer.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "vm-rebalancer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "vm-rebalancer.policyConfigMap" -}}
{{ include "vm-rebalancer.fullname" . }}-policy
{{- end -}}

{{/* The programs that are installed, as a JSON list. */}}
{{- define "vm-rebalancer.programs" -}}
{{- ternary (list "descheduler" "soft-tainter") (list "descheduler") .Values.softTainter.enabled | toJson -}}
{{- end -}}

{{- define "vm-rebalancer.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where the programs ask for metrics: what the policy says, else the program's default. */}}
{{- define "vm-rebalancer.metricsUrl" -}}
{{- dig "url" "https://thanos-querier.openshift-monitoring.svc:9091" (.Values.policy.metrics | default dict) -}}
{{- end -}}

{{/* The namespace of Prometheus; empty if it is not in the cluster. */}}
{{- define "vm-rebalancer.prometheusNamespace" -}}
{{- if .Values.monitoring.namespace -}}
{{- .Values.monitoring.namespace -}}
{{- else -}}
{{- $url := include "vm-rebalancer.metricsUrl" . -}}
{{- if regexMatch `^https?://[^./:]+\.[^./:]+\.svc([.:/]|$)` $url -}}
{{- regexReplaceAll `^https?://[^./:]+\.([^./:]+)\.svc.*$` $url "${1}" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "vm-rebalancer.hasPrometheusOperator" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end -}}
{{- end -}}

{{- define "vm-rebalancer.hasServiceMonitor" -}}
{{- $enabled := .Values.monitoring.serviceMonitor.enabled -}}
{{- if eq (toString $enabled) "auto" -}}
{{ include "vm-rebalancer.hasPrometheusOperator" . }}
{{- else if $enabled -}}
true
{{- end -}}
{{- end -}}

{{- define "vm-rebalancer.hasRecordingRules" -}}
{{- $enabled := .Values.monitoring.recordingRules -}}
{{- if eq (toString $enabled) "auto" -}}
{{ include "vm-rebalancer.hasPrometheusOperator" . }}
{{- else if $enabled -}}
true
{{- end -}}
{{- end -}}

{{- define "vm-rebalancer.hasAlerts" -}}
{{- $enabled := .Values.monitoring.alerts -}}
{{- if eq (toString $enabled) "auto" -}}
{{ include "vm-rebalancer.hasServiceMonitor" . }}
{{- else if $enabled -}}
true
{{- end -}}
{{- end -}}
