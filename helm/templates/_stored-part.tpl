{{/* The port on which a part listens. */}}
{{- define "merchant-gateway.partPort" -}}
{{- ternary "9443" "7080" (eq . "registry") -}}
{{- end -}}

{{/* All objects of a part with a database: the registry or the services. Takes root and part. */}}
{{- define "merchant-gateway.storedPart" -}}
{{- $settings := index .root.Values .part }}
{{- $name := printf "%s-%s" (include "merchant-gateway.fullname" .root) .part }}
{{- $part := dict "root" .root "part" .part "component" .part "name" $name "settings" $settings }}
{{- $port := include "merchant-gateway.partPort" .part | int }}
{{- $hasPostgres := include "merchant-gateway.hasPostgres" . }}
{{- $graceSeconds := include "merchant-gateway.storedGraceSeconds" . | int }}
{{- $isMigratedBefore := and $hasPostgres .root.Values.migrations.enabled }}
{{- /* A migration statement may take an hour, in a separate Job or when the part starts. */}}
{{- $migrationSeconds := 4500 }}
{{- $startSeconds := ternary 120 $migrationSeconds (not (empty $isMigratedBefore)) }}
{{- /* A new part creates its database. Later, an empty database is the wrong one, unless createDatabase is true. */}}
{{- $isNew := empty (lookup "apps/v1" "Deployment" .root.Release.Namespace $name) }}
{{- $create := ternary (list "--create") list (ternary $isNew $settings.createDatabase (kindIs "invalid" $settings.createDatabase)) }}
{{- $volumes := list }}
{{- $mounts := list }}
{{- if not $hasPostgres }}
{{- $claim := default $name $settings.persistence.existingClaim }}
{{- $volumes = append $volumes (dict "name" "data" "persistentVolumeClaim" (dict "claimName" $claim)) }}
{{- $mounts = append $mounts (dict "name" "data" "mountPath" "/var/lib/merchant-gateway/data") }}
{{- end }}
{{- $isRegistry := eq .part "registry" }}
{{- $scheme := dict }}
{{- if $isRegistry }}
{{- $secret := include "merchant-gateway.registryTlsSecret" .root }}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" $secret "defaultMode" 0440)) }}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/merchant-gateway/tls" "readOnly" true) }}
{{- $scheme = dict "scheme" "HTTPS" }}
{{- end }}
{{- $hasConsole := and $isRegistry (dig "registry" "console" nil .root.Values.config) }}
{{- $ports := merge (dict "api" $port) (ternary (dict "console" 7443) dict (not (empty $hasConsole))) }}
{{- $open := dict "httpGet" (merge (dict "path" "/livez" "port" "api") $scheme) }}
{{- $ready := dict "httpGet" (merge (dict "path" "/readyz" "port" "api") $scheme) }}
{{- $probes := dict
  "startupProbe" (merge (dict "periodSeconds" 2 "failureThreshold" (div $startSeconds 2)) $open)
  "livenessProbe" (merge (dict "periodSeconds" 10 "timeoutSeconds" 3 "failureThreshold" 6) $open)
  "readinessProbe" (merge (dict "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 2) $ready)
}}
{{ include "merchant-gateway.check" $part }}
---
{{ include "merchant-gateway.configMap" $part }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" $settings.deploymentAnnotations "labels" $settings.deploymentLabels) $part) | nindent 2 }}
spec:
  replicas: {{ $settings.replicas }}
  revisionHistoryLimit: {{ $settings.revisionHistoryLimit }}
  progressDeadlineSeconds: {{ add $startSeconds 600 }}
  strategy:
    {{- if $hasPostgres }}
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
    {{- else }}
    # Two processes must not write to the same SQLite file.
    type: Recreate
    {{- end }}
  selector:
    matchLabels:
      {{- include "merchant-gateway.selectorLabels" $part | nindent 6 }}
  template:
    {{- include "merchant-gateway.pod" (merge (dict
      "args" (concat (list .part "--config" "/etc/merchant-gateway/config/gateway.yaml") (ternary list $create (not (empty $isMigratedBefore))))
      "configMap" $name
      "graceSeconds" (int (default $graceSeconds $settings.terminationGracePeriodSeconds))
      "preStopSeconds" 5
      "ports" $ports
      "probes" (include "merchant-gateway.probes" (dict "probes" $probes "settings" $settings) | fromJson)
      "volumes" $volumes
      "mounts" $mounts
    ) $part) | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" $settings.serviceAnnotations "labels" (merge (dict "merchant-gateway/metrics" "true") $settings.serviceLabels)) $part) | nindent 2 }}
spec:
  selector:
    {{- include "merchant-gateway.selectorLabels" $part | nindent 4 }}
  ports:
    - { name: {{ ternary "api-tls" "api" $isRegistry }}, port: {{ $settings.servicePort }}, targetPort: api{{ if $isRegistry }}, appProtocol: https{{ end }} }
    {{- if $hasConsole }}
    - { name: console, port: 7443, targetPort: console, appProtocol: https }
    {{- end }}
{{- if and $settings.podDisruptionBudget.enabled (gt (int $settings.replicas) 1) }}
---
{{ include "merchant-gateway.budget" (merge (dict "budget" $settings.podDisruptionBudget) $part) }}
{{- end }}
{{- if and (not $hasPostgres) (not $settings.persistence.existingClaim) }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" (merge (dict "helm.sh/resource-policy" "keep") $settings.persistence.annotations)) $part) | nindent 2 }}
spec:
  accessModes:
    {{- toYaml $settings.persistence.accessModes | nindent 4 }}
  {{- with $settings.persistence.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources: { requests: { storage: {{ $settings.persistence.size }} } }
{{- end }}
{{- if $isMigratedBefore }}
{{- $job := merge (dict "isHook" true "isMigration" true "component" (printf "%s-migration" .part) "name" (printf "%s-migration" $name)) $part }}
{{- $hook := dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{- $allowed := .root.Values.networkPolicy.egress }}
{{- $migrations := .root.Values.migrations }}
{{- $grant := ternary (list "--grant-to" $migrations.registryUser) list (and (eq .part "registry") (ne $migrations.registryOwner.existingSecret "")) }}
{{- include "merchant-gateway.hookPolicy" (merge (dict "hook" $hook "egress" (list $allowed.dns $allowed.database)) $job) }}
---
{{ include "merchant-gateway.configMap" (merge (dict "annotations" (merge (dict "helm.sh/hook-weight" "-5") $hook)) $job) }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" $hook) $job) | nindent 2 }}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: {{ $migrationSeconds }}
  template:
    {{- include "merchant-gateway.pod" (merge (dict
      "args" (concat (list "database" "migrate" .part "--config" "/etc/merchant-gateway/config/gateway.yaml") $create $grant)
      "configMap" (printf "%s-migration" $name)
      "graceSeconds" 30
    ) $job) | nindent 4 }}
{{- end }}
{{- end -}}
