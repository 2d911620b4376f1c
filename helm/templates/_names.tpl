{{/* Short enough for what is put behind it. */}}
{{- define "merchant-gateway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "merchant-gateway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What tells the pods of one part. Takes root and component, such as gateway-live. */}}
{{- define "merchant-gateway.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Each name once: what selects pods, then what is nearest to the object. Takes root, component and, if need be, labels. */}}
{{- define "merchant-gateway.labels" -}}
{{- $selecting := include "merchant-gateway.selectorLabels" . | fromYaml -}}
{{- /* A tag may be longer than a label, and begin and end with what a label may not. */}}
{{- $version := default .root.Chart.AppVersion .root.Values.image.tag | regexFind "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?" -}}
{{- $describing := dict "app.kubernetes.io/version" $version -}}
{{- $_ := set $describing "app.kubernetes.io/part-of" "merchant-gateway" -}}
{{- $_ := set $describing "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $describing "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- merge $selecting (default (dict) .labels) .root.Values.commonLabels $describing | toYaml -}}
{{- end -}}

{{/* The metadata of an object. Takes root, component, name and, if need be, annotations and labels. */}}
{{- define "merchant-gateway.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "merchant-gateway.labels" . | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A group of fields and what is set above it, where null takes a field away: JSON. Takes base and above. */}}
{{- define "merchant-gateway.above" -}}
{{- $fields := deepCopy .base -}}
{{- range $name, $value := .above -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $fields $name -}}
{{- else -}}
{{- $_ := set $fields $name $value -}}
{{- end -}}
{{- end -}}
{{- $fields | toJson -}}
{{- end -}}

{{/* The account of the pods. */}}
{{- define "merchant-gateway.serviceAccountName" -}}
{{- default (ternary (include "merchant-gateway.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The values of the gateways of one environment. Takes root and environment. */}}
{{- define "merchant-gateway.gatewayValues" -}}
{{- $overrides := (index .root.Values.environments .environment).gateway -}}
{{- mergeOverwrite (deepCopy .root.Values.gateway) (deepCopy $overrides) | toJson -}}
{{- end -}}

{{/* How many gateways an environment has at least. Takes their values. */}}
{{- define "merchant-gateway.leastReplicas" -}}
{{- ternary .autoscaling.minReplicas (ternary 3 .replicas (kindIs "invalid" .replicas)) .autoscaling.enabled -}}
{{- end -}}

{{/* The names of the environments that are enabled, as a list in JSON. */}}
{{- define "merchant-gateway.environments" -}}
{{- $names := list -}}
{{- range $name := list "live" "test" -}}
{{- if (index $.Values.environments $name).enabled -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Says whether a part has PostgreSQL. Takes root and part. */}}
{{- define "merchant-gateway.hasPostgres" -}}
{{- if (index .root.Values.secrets (printf "%sDatabase" .part)).existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "merchant-gateway.hasTls" -}}
{{- if or .tls.existingSecret .tls.certManager.enabled -}}true{{- end -}}
{{- end -}}
