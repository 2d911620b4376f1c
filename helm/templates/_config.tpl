{{/* One option as a nest of groups. Takes option, a list of names, and value. */}}
{{- define "merchant-gateway.nest" -}}
{{- $nested := .value -}}
{{- range $name := reverse .option -}}
{{- $nested = dict $name $nested -}}
{{- end -}}
{{- $nested | toJson -}}
{{- end -}}

{{/* What the chart itself sets. Takes root, part and, for gateways, environment and settings. */}}
{{- define "merchant-gateway.ownedConfig" -}}
{{- $owned := dict -}}
{{- $host := .root.Values.gateway.listenAddress -}}
{{- if eq .part "gateway" -}}
  {{- $listen := dict "management" (dict "host" .settings.listenAddress "port" 9090) -}}
  {{- if include "merchant-gateway.hasTls" .settings -}}
    {{- $certificate := dict "certFile" "/etc/merchant-gateway/tls/tls.crt" "keyFile" "/etc/merchant-gateway/tls/tls.key" -}}
    {{- $_ := set $listen "https" (merge (dict "host" .settings.listenAddress "port" 8443) $certificate) -}}
  {{- end -}}
  {{- $_ := set $listen "http" (ternary (dict "host" .settings.listenAddress "port" 8080) nil .settings.plainListener) -}}
  {{- $owned = dict "environment" .environment "listen" $listen "limits" (dict "drainDelaySeconds" .settings.drainDelaySeconds) -}}
  {{- if .root.Values.torExits.existingConfigMap -}}
    {{- $urls := dig "torExits" "sources" list .root.Values.config -}}
    {{- $file := printf "/etc/merchant-gateway/tor-exits/%s" .root.Values.torExits.key -}}
    {{- $_ := set $owned "torExits" (dict "sources" (prepend $urls $file)) -}}
  {{- end -}}
  {{- if and .root.Values.services.enabled (not (dig "upstreams" dict .root.Values.config)) -}}
    {{- $url := printf "http://%s-services:%v" (include "merchant-gateway.fullname" .root) .root.Values.services.servicePort -}}
    {{- $upstream := dict "url" $url -}}
    {{- $_ := set $owned "upstreams" (dict "transactions" $upstream "payouts" $upstream "customers" $upstream) -}}
  {{- end -}}
{{- else if ne .part "tor-exits" -}}
  {{- $url := printf "sqlite:/var/lib/merchant-gateway/data/%s.db" .part -}}
  {{- if include "merchant-gateway.hasPostgres" . -}}
    {{- $url = "${MERCHANT_GATEWAY_DATABASE_URL}" -}}
  {{- end -}}
  {{- $port := ternary 9443 7080 (eq .part "registry") -}}
  {{- $owned = dict .part (dict "listen" (dict "host" $host "port" $port) "database" (dict "url" $url)) -}}
  {{- $environments := include "merchant-gateway.environments" .root | fromJsonArray -}}
  {{- if and (eq .part "services") $environments (not (dig "identity" "publicKeysUrl" nil .root.Values.config)) -}}
    {{- $management := printf "%s-%s-management" (include "merchant-gateway.fullname" .root) (first $environments) -}}
    {{- $url := printf "http://%s:9090/.well-known/jwks.json" $management -}}
    {{- $_ := set $owned "identity" (dict "publicKeysUrl" $url) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $secret := include "merchant-gateway.secretsOfPart" . | fromJson -}}
  {{- $file := printf "/etc/merchant-gateway/secrets/%s/%s" $name $secret.key -}}
  {{- $owned = mergeOverwrite $owned (include "merchant-gateway.nest" (dict "option" $secret.option "value" $file) | fromJson) -}}
{{- end -}}
{{- $owned | toJson -}}
{{- end -}}

{{/* The options that each part looks at. A migration looks at its database alone. */}}
{{- define "merchant-gateway.config" -}}
{{- $config := deepCopy .root.Values.config -}}
{{- if .isMigration -}}
{{- $config = dict -}}
{{- else if eq .part "gateway" -}}
{{- $config = omit (mergeOverwrite $config (deepCopy .settings.config)) "registry" "services" -}}
{{- else if eq .part "tor-exits" -}}
{{- $config = pick $config "keyStore" "torExits" "trustedProxies" "log" -}}
{{- else -}}
{{- $config = pick $config (ternary "keyStore" "identity" (eq .part "registry")) "limits" "log" .part -}}
{{- end -}}
{{- mergeOverwrite $config (include "merchant-gateway.ownedConfig" . | fromJson) | toYaml -}}
{{- end -}}

{{/* A ConfigMap with it. Takes the same, and name, component and annotations. */}}
{{- define "merchant-gateway.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "merchant-gateway.metadata" . | nindent 2 }}
data:
  gateway.yaml: |
    {{- include "merchant-gateway.config" . | nindent 4 }}
{{- end -}}
