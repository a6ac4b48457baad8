{{/*
What values.schema.json cannot say: how fields compare with each other, and how long a duration is. The programs refuse
the same policies; here it shows before anything is installed.
*/}}

{{/* A duration such as 1h30m or 500ms, in milliseconds. */}}
{{- define "vm-rebalancer.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" . -1 -}}
{{- $sum = add $sum (mul (regexReplaceAll "^0*([0-9]+)[a-z]+$" . "${1}" | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* The problems of a dict of `policy`, as a JSON list. */}}
{{- define "vm-rebalancer.policyProblems" -}}
{{- $problems := list -}}
{{- $metrics := .policy.metrics | default dict -}}
{{- $thresholds := .policy.thresholds | default dict -}}
{{- $evictions := .policy.evictions | default dict -}}
{{- $breaker := $evictions.breaker | default dict -}}
{{- $cooldown := $evictions.cooldown | default dict -}}

{{- /* path, value, shortest, path of the one that it may not exceed, its value */ -}}
{{- $refresh := $metrics.refreshInterval | default "30s" -}}
{{- $maxAge := $metrics.maxAge | default "3m" -}}
{{- $migration := $evictions.migrationTimeout | default "30m" -}}
{{- $max := $cooldown.max | default "6h" -}}
{{- $window := $cooldown.window | default "48h" -}}
{{- $year := list "" "8760h" -}}
{{- $durations := list
  (list "metrics.timeout" ($metrics.timeout | default "10s") "100ms" "metrics.refreshInterval" $refresh)
  (list "metrics.refreshInterval" $refresh "1s" "metrics.maxAge" $maxAge)
  (concat (list "metrics.maxAge" $maxAge "1s") $year)
  (concat (list "evictions.minVmAge" ($evictions.minVmAge | default "5m") "0s") $year)
  (concat (list "evictions.settle" ($evictions.settle | default "2m") "1s") $year)
  (list "evictions.acknowledgeTimeout" ($evictions.acknowledgeTimeout | default "1m30s") "1s" "evictions.migrationTimeout" $migration)
  (concat (list "evictions.breaker.within" ($breaker.within | default "10m") "1s") $year)
  (concat (list "evictions.breaker.rest" ($breaker.rest | default "1h") "0s") $year)
  (concat (list "evictions.migrationTimeout" $migration "1s") $year)
  (list "evictions.cooldown.base" ($cooldown.base | default "15m") "0s" "evictions.cooldown.max" $max)
  (list "evictions.cooldown.max" $max "0s" "evictions.cooldown.window" $window)
  (concat (list "evictions.cooldown.window" $window "1s") $year)
-}}
{{- range $i, $query := $metrics.queries -}}
{{- $durations = append $durations (concat (list (printf "metrics.queries[%d].window" $i) $query.window "1s") $year) -}}
{{- end -}}
{{- range $durations -}}
{{- $path := index . 0 -}}{{- $value := index . 1 -}}{{- $shortest := index . 2 -}}{{- $other := index . 3 -}}{{- $longest := index . 4 -}}
{{- $ms := include "vm-rebalancer.milliseconds" $value | int64 -}}
{{- if lt $ms (include "vm-rebalancer.milliseconds" $shortest | int64) -}}
{{- $problems = append $problems (printf "%s: %s; allowed: from %s" $path $value $shortest) -}}
{{- else if gt $ms (include "vm-rebalancer.milliseconds" $longest | int64) -}}
{{- $problems = append $problems (printf "%s: %s; allowed: at most %s" $path $value (ternary $longest (printf "%s (%s)" $other $longest) (empty $other))) -}}
{{- end -}}
{{- end -}}

{{- $limits := $evictions.limits | default dict -}}
{{- $node := dig "node" (get (dict "Simple" 1 "Modest" 2 "Rapid" 5) ($evictions.multiEvictions | default "Simple")) $limits -}}
{{- $total := dig "total" 5 $limits -}}
{{- if gt (int $node) (int $total) -}}
{{- $problems = append $problems (printf "evictions.limits.node: %v; allowed: at most evictions.limits.total (%v)" $node $total) -}}
{{- end -}}

{{- $names := list -}}
{{- $bounds := list (list "thresholds" $thresholds) -}}
{{- range $i, $query := $metrics.queries -}}
{{- if has $query.name $names -}}
{{- $problems = append $problems (printf "metrics.queries[%d].name: %s again; allowed: a name of its own for each query" $i $query.name) -}}
{{- end -}}
{{- $names = append $names $query.name -}}
{{- $bounds = append $bounds (list (printf "metrics.queries[%d].thresholds" $i) ($query.thresholds | default dict)) -}}
{{- end -}}
{{- range $bounds -}}
{{- $static := get (index . 1) "utilizationThresholds" -}}
{{- if kindIs "map" $static -}}
{{- if gt (float64 $static.under) (float64 $static.over) -}}
{{- $problems = append $problems (printf "%s.utilizationThresholds.under: %v; allowed: at most over (%v)" (index . 0) $static.under $static.over) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $namespaces := $evictions.namespaces | default dict -}}
{{- range dig "include" list $namespaces -}}
{{- if has . (dig "exclude" (list "kube-system" "openshift-*") $namespaces) -}}
{{- $problems = append $problems (printf "evictions.namespaces.include: %s, which exclude holds too; allowed: what is not excluded" .) -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{- define "vm-rebalancer.checkValues" -}}
{{- $problems := list -}}
{{- range include "vm-rebalancer.policyProblems" (dict "policy" .Values.policy) | fromJsonArray -}}
{{- $problems = append $problems (printf "policy.%s" .) -}}
{{- end -}}
{{- if and (eq .Values.platform "kubernetes") (not (dig "url" "" (.Values.policy.metrics | default dict))) -}}
{{- $problems = append $problems "policy.metrics.url: nothing; allowed: the URL of Prometheus (with platform: openshift it has a default)" -}}
{{- end -}}
{{- if and .Values.rbac.readOnly (eq (.Values.policy.mode | default "Predictive") "Automatic") -}}
{{- $problems = append $problems "rbac.readOnly: true; allowed: false with policy.mode Automatic, which evicts" -}}
{{- end -}}
{{- $election := .Values.leaderElection -}}
{{- $duration := include "vm-rebalancer.milliseconds" $election.leaseDuration | int64 -}}
{{- $deadline := include "vm-rebalancer.milliseconds" $election.renewDeadline | int64 -}}
{{- $retry := include "vm-rebalancer.milliseconds" $election.retryPeriod | int64 -}}
{{- if not (and (gt $duration $deadline) (gt (mul 10 $deadline) (mul 12 $retry)) (gt $retry (int64 0))) -}}
{{- $problems = append $problems "leaderElection: allowed: leaseDuration longer than renewDeadline, and that longer than 1.2 times retryPeriod" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n  %s" (join "\n  " $problems)) -}}
{{- end -}}
{{- end -}}
