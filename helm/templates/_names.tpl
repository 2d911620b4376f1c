{{/* The base name of all objects, short enough for the suffixes that follow. */}}
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

{{/* The labels that select the pods of one part. Takes root and component, such as gateway-live. */}}
{{- define "merchant-gateway.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object. Selector labels take precedence, then the object's own labels. Takes root, component and optionally labels. */}}
{{- define "merchant-gateway.labels" -}}
{{- $selecting := include "merchant-gateway.selectorLabels" . | fromYaml -}}
{{- /* An image tag may be longer than a label value, and may begin and end with characters that a label value may not. */}}
{{- $version := default .root.Chart.AppVersion .root.Values.image.tag | regexFind "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?" -}}
{{- $describing := dict "app.kubernetes.io/version" $version -}}
{{- $_ := set $describing "app.kubernetes.io/part-of" "merchant-gateway" -}}
{{- $_ := set $describing "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $describing "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- merge $selecting (default (dict) .labels) .root.Values.commonLabels $describing | toYaml -}}
{{- end -}}

{{/* The metadata of an object. Takes root, component, name and optionally annotations and labels. */}}
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

{{/* A group of fields with overrides; null removes a field. Takes base and above. Returns JSON. */}}
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

{{/* The name of the pods' service account. */}}
{{- define "merchant-gateway.serviceAccountName" -}}
{{- default (ternary (include "merchant-gateway.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The values of the gateways of one environment. Takes root and environment. */}}
{{- define "merchant-gateway.gatewayValues" -}}
{{- $overrides := (index .root.Values.environments .environment).gateway -}}
{{- mergeOverwrite (deepCopy .root.Values.gateway) (deepCopy $overrides) | toJson -}}
{{- end -}}

{{/* The minimum number of gateways of an environment. Takes their values. */}}
{{- define "merchant-gateway.leastReplicas" -}}
{{- ternary .autoscaling.minReplicas (ternary 3 .replicas (kindIs "invalid" .replicas)) .autoscaling.enabled -}}
{{- end -}}

{{/* The names of the enabled environments. Returns a JSON list. */}}
{{- define "merchant-gateway.environments" -}}
{{- $names := list -}}
{{- range $name := list "live" "test" -}}
{{- if (index $.Values.environments $name).enabled -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Whether a part uses PostgreSQL. Takes root and part. */}}
{{- define "merchant-gateway.hasPostgres" -}}
{{- if (index .root.Values.secrets (printf "%sDatabase" .part)).existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "merchant-gateway.hasTls" -}}
{{- if or .tls.existingSecret .tls.certManager.enabled -}}true{{- end -}}
{{- end -}}
