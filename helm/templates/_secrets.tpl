{{/* The secrets that are files: their place in the configuration, and the parts that have them. */}}
{{- define "merchant-gateway.secretFiles" -}}
keyPepper: { option: [keys, pepperFile], parts: [gateway, registry] }
recordSecret: { option: [keys, recordSecretFile], parts: [gateway, registry] }
redisPassword: { option: [keyStore, redis, passwordFile], parts: [gateway, registry, tor-exits] }
redisCa: { option: [keyStore, redis, caFile], parts: [gateway, registry, tor-exits] }
adminToken: { option: [registry, tokenFile], parts: [registry] }
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
The secrets of a part, by name: the Secret's name and key, and the option. A migration has none of them.
Takes root, part and, if need be, isMigration.
*/}}
{{- define "merchant-gateway.secretsOfPart" -}}
{{- $found := dict -}}
{{- range $name, $file := include "merchant-gateway.secretFiles" . | fromYaml -}}
{{- $secret := index $.root.Values.secrets $name -}}
{{- $own := and (dig "create" false $secret) (include "merchant-gateway.recordSecretName" $.root) -}}
{{- $existing := default $own $secret.existingSecret -}}
{{- if and $existing (has $.part $file.parts) (not $.isMigration) -}}
{{- $_ := set $found $name (dict "secret" $existing "key" $secret.key "option" $file.option) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
