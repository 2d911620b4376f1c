{{/* The secrets that are files: their place in the configuration, and the parts that have them. */}}
{{- define "merchant-gateway.secretFiles" -}}
keyPepper: { option: [keys, pepperFile], parts: [gateway, registry] }
recordSecret: { option: [keys, recordSecretFile], parts: [gateway, registry] }
redisPassword: { option: [keyStore, redis, passwordFile], parts: [gateway, registry, tor-exits] }
sentinelPassword: { option: [keyStore, redis, sentinel, passwordFile], parts: [gateway, registry, tor-exits] }
redisCa: { option: [keyStore, redis, caFile], parts: [gateway, registry, tor-exits] }
adminToken: { option: [registry, tokenFile], parts: [registry] }
operatorsToken: { option: [services, operators, tokenFile], parts: [services] }
identitySigningKey: { option: [identity, signingKeyFile], parts: [gateway] }
accessLog: { option: [accessLog, secretFile], parts: [gateway] }
tlsTicketKeys: { option: [listen, https, ticketKeysFile], parts: [gateway] }
tlsClientCa: { option: [listen, https, clientCaFile], parts: [gateway] }
traces: { option: [traces, tokenFile], parts: [gateway] }
{{- end -}}

{{/* The name of the Secret that the chart makes. */}}
{{- define "merchant-gateway.recordSecretName" -}}
{{- include "merchant-gateway.fullname" . }}-record-secret
{{- end -}}

{{/*
Says whether the chart makes the Secret that seals records. Where the values leave it open:
- A release that has one keeps it.
- A new installation gets one if it has gateways and their registry. A gateway with the secret believes nothing before the registry has sealed
  every record, so an upgrade must not add it; and a registry elsewhere would not know it.
- A tool that renders without the cluster, as for GitOps, gets none: it would make another one each time. Nothing can be looked up then,
  not even the administrators' token, which is there before the registry is installed.
*/}}
{{- define "merchant-gateway.makesRecordSecret" -}}
{{- $secret := .Values.secrets.recordSecret -}}
{{- $create := dig "create" nil $secret -}}
{{- if $secret.existingSecret -}}
{{- else if kindIs "bool" $create -}}
{{- if $create -}}true{{- end -}}
{{- else if lookup "v1" "Secret" .Release.Namespace (include "merchant-gateway.recordSecretName" .) -}}
true
{{- else if and .Release.IsInstall .Values.registry.enabled (include "merchant-gateway.environments" . | fromJsonArray) -}}
{{- with .Values.secrets.adminToken.existingSecret -}}
{{- if lookup "v1" "Secret" $.Release.Namespace . -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The secrets of a part, by name: the Secret's name and key, and the option. A migration has none of them.
Takes root, part and, if need be, isMigration.
*/}}
{{- define "merchant-gateway.secretsOfPart" -}}
{{- $found := dict -}}
{{- $made := and (include "merchant-gateway.makesRecordSecret" .root) (include "merchant-gateway.recordSecretName" .root) -}}
{{- range $name, $file := include "merchant-gateway.secretFiles" . | fromYaml -}}
{{- $secret := index $.root.Values.secrets $name -}}
{{- $existing := default (ternary $made "" (eq $name "recordSecret")) $secret.existingSecret -}}
{{- if and $existing (has $.part $file.parts) (not $.isMigration) -}}
{{- $_ := set $found $name (dict "secret" $existing "key" $secret.key "option" $file.option) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
