{{/*
A hook in which the product checks the configuration of a part before an installation or upgrade changes anything. The
check opens none of the files named in the configuration, so its pod mounts none of them.
Takes root, part, component, name, settings and, for gateways, environment.
*/}}
{{- define "merchant-gateway.check" -}}
{{- if .root.Values.configCheck.enabled }}
{{- $small := dict "requests" (dict "cpu" "50m" "memory" "96Mi") "limits" (dict "memory" "256Mi") }}
{{- $nowhere := dict "extraVolumes" list "extraVolumeMounts" list "topologySpreadConstraints" list }}
{{- $settings := mergeOverwrite (omit (deepCopy .settings) "resources") $nowhere (dict "resources" $small) }}
{{- $name := printf "%s-check" .name }}
{{- $check := merge (dict "isHook" true "component" (printf "%s-check" .component) "name" $name "settings" $settings) (omit . "settings") }}
{{- /* config check has no --for tor-exits. */}}
{{- $for := ternary list (list "--for" .part) (eq .part "tor-exits") }}
{{- $hook := dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{- include "merchant-gateway.hookPolicy" (merge (dict "hook" $hook "egress" list) $check) }}
---
{{ include "merchant-gateway.configMap" (merge (dict "annotations" (merge (dict "helm.sh/hook-weight" "-10") $hook)) $check) }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" (merge (dict "helm.sh/hook-weight" "-9") $hook)) $check) | nindent 2 }}
spec:
  # A retry cannot correct a configuration, but it helps if the node was lost meanwhile.
  backoffLimit: 1
  activeDeadlineSeconds: 300
  template:
    {{- include "merchant-gateway.pod" (merge (dict
      "args" (concat (list "config" "check" "--config" "/etc/merchant-gateway/config/gateway.yaml") $for)
      "configMap" $name
      "graceSeconds" 10
    ) $check) | nindent 4 }}
{{- end }}
{{- end -}}
